/** Layouts of other vendors and lists, as their public clients read them. */
import { expect, test } from 'vitest';
import { decode, lines } from './decode.ts';

test.each<[name: string, answer: unknown, list: string | undefined, entries: readonly string[]]>([
  [
    'upper-case envelope',
    { ERRORCODE: '0', RESULT: [{ port: '43617', ip: '192.0.2.1' }] },
    'RESULT',
    ['192.0.2.1:43617'],
  ],
  ['list in msg', { code: '0', msg: [{ port: '33837', ip: '192.0.2.1' }] }, 'msg', ['192.0.2.1:33837']],
  [
    'account and validTime',
    {
      code: '0',
      obj: [{ password: 'pw', port: '45420', ip: '192.0.2.1', account: 'me', validTime: 120 }],
      data: [null],
    },
    'obj',
    ['192.0.2.1:45420 120000 me/pw'],
  ],
  [
    'host with the port, and another IP',
    {
      Code: 0,
      Data: [
        {
          IP: '198.51.100.1',
          port: '64450',
          deadline: '2026-11-22 10:05:00',
          host: '192.0.2.1:64450',
          region: '福建省',
        },
      ],
    },
    'Data',
    ['192.0.2.1:64450 300000 福建省'],
  ],
  [
    'a list inside each task',
    {
      code: 'SUCCESS',
      data: [{ task_id: 'x', ips: [{ proxy_ip: '198.51.100.9', server: '192.0.2.1:80', area: 'a' }] }],
    },
    'data.0.ips',
    ['192.0.2.1:80 198.51.100.9 a'],
  ],
  [
    'credentials of each proxy, and moments that are no expiry',
    {
      results: [
        {
          username: 'u',
          password: 'p',
          proxy_address: '192.0.2.1',
          port: 8168,
          valid: true,
          created_at: '2022-06-14T11:58:10.246406-07:00',
        },
      ],
    },
    'results',
    ['192.0.2.1:8168 u/p'],
  ],
  [
    'a latency called timeout',
    {
      proxies: [
        {
          ip: '192.0.2.1',
          port: 8080,
          protocol: 'http',
          timeout: 152.3,
          ip_data: { country: 'X', city: 'Y' },
        },
      ],
    },
    'proxies',
    ['192.0.2.1:8080 X Y'],
  ],
  [
    'seconds and a city with prefixes',
    { data: { proxy_list: [{ ip: '192.0.2.1', port: 80, city_name: '重庆', ip_remain: 120 }] } },
    'data.proxy_list',
    ['192.0.2.1:80 120000 重庆'],
  ],
  [
    'Unix time in ms',
    { data: [{ ip: '192.0.2.1', port: 80, expired: 1_795_313_100_000 }] },
    'data',
    ['192.0.2.1:80 300000'],
  ],
  [
    'a location before the life',
    { data: { proxy_list: ['192.0.2.1:80,广东省,172'] } },
    'data.proxy_list',
    ['192.0.2.1:80 172000 广东省'],
  ],
  ['a head line', 'ip,port\n192.0.2.1,80\n192.0.2.2,81', undefined, ['192.0.2.1:80', '192.0.2.2:81']],
  ['URLs', 'http://user:pw@192.0.2.1:8080', undefined, ['192.0.2.1:8080 user/pw']],
  ['credentials and a life', '192.0.2.1:80:123:abc,281', undefined, ['192.0.2.1:80 281000 123/abc']],
])('link: recognises a layout with %s', (_name, answer, list, entries) => {
  const decoded = decode(answer);
  expect(lines(decoded)).toEqual(entries);
  expect(decoded.recognised?.list).toBe(list);
});
