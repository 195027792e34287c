import { expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Config } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { printConfig } from '../../src/config/print.ts';
import { configOf, FILE, filesOf } from './files.ts';

const EVERYTHING = `
service: { baseUrl: https://extract.example.com, method: POST, timeout: 3s }
account: { username: someone, password: hunter2 }
sources:
  - name: city
    product: shared
    instance: "202611210001000012"
    password: hunter2
    params: { count: 5, timespan: 3, adr: "广东,江苏" }
    format: text
    textLayout: "{ip}:{port},{adr}"
    upstream: { protocol: https, auth: instance }
    interval: 1500ms
    dailyBudget: 2000
    lifetime: 90m
    size: 3
    priority: 2
  - { name: pure, product: short-pure, instance: 2, akey: 83aa400af464c76d, host: "node7.example.com:9000", upstream: { auth: none } }
  - { name: other, product: free, instance: 3, akey: 83aa400af464c76d, upstream: { auth: { username: u, password: hunter2 } } }
pool: { size: 5, idleAfter: 0, safetyMargin: 1s, minRemaining: 2s, allowPrivateAddresses: true }
rotation: { strategy: fastest, maxTunnelsPerMember: 1, maxUsesPerMember: 2, perHostSpacing: 1m, sessionTtl: 2h }
dial: { attempts: 1, attemptTimeout: 1s, hedgeAfter: 300ms, deadline: 10s, waitForMember: 5s }
health: { maxFailures: 1, quarantine: 1s, check: { url: http://example.com/, every: 5s, timeout: 1s, expectStatus: 204 } }
listeners:
  - { address: "0.0.0.0:9000-9009", users: [{ username: alice, password: hunter2 }], allow: [10.0.0.0/8], source: city, session: port }
admin: { address: "[::1]:9999", token: hunter2 }
log: { level: debug, format: json }
state: { dir: /var/lib/noria }
shutdown: { drainTimeout: 5s }
workers: auto
`;

test('print: shows every key with its effective value, and masks every secret', () => {
  const printed = printConfig(parseConfig(EVERYTHING, FILE, { env: {}, files: filesOf({}) }));
  expect(printed).not.toContain('hunter2');
  expect(printed).not.toContain('83aa400af464c76d');
  expect(parse(printed, { schema: 'failsafe' })).toMatchObject({
    service: { method: 'POST', timeout: '3s' },
    account: { username: 'someone', key: '[secret]' },
    sources: [
      {
        instance: '202611210001000012',
        password: '[secret]',
        params: { count: '5', timespan: '3', adr: '广东,江苏', pro: '1', order: '2' },
        textLayout: '{ip}:{port},{adr}',
        upstream: { protocol: 'https', auth: 'instance' },
        interval: '1500ms',
        lifetime: '90m',
      },
      { akey: '[secret]', host: 'node7.example.com:9000', upstream: { protocol: 'http', auth: 'none' } },
      { upstream: { auth: { username: 'u', password: '[secret]' } }, size: '5' },
    ],
    pool: { idleAfter: '0s', allowPrivateAddresses: 'true' },
    dial: { hedgeAfter: '300ms' },
    health: { check: { url: 'http://example.com/', expectStatus: '204' } },
    listeners: [
      {
        address: '0.0.0.0:9000-9009',
        users: [{ username: 'alice', password: '[secret]' }],
        allow: ['10.0.0.0/8'],
      },
    ],
    admin: { address: '[::1]:9999', token: '[secret]' },
    workers: 'auto',
  });
});

test('print: the output is a configuration with the same values, except for secrets', () => {
  for (const text of [EVERYTHING, undefined]) {
    const config =
      text === undefined
        ? configOf('', 'admin: off\nstate: off')
        : parseConfig(text, FILE, { env: {}, files: filesOf({}) });
    const printed = printConfig(config);
    const readable = printed
      .replace(/(akey|key): "\[secret\]"/g, '$1: 83aa400af464c76d')
      .replaceAll('"[secret]"', 'hunter2');
    const again = parseConfig(readable, FILE, { env: {}, files: filesOf({}) });
    expect(plain(again)).toEqual(plain(config));
    expect(printConfig(again)).toBe(printed);
  }
});

function plain(config: Config): unknown {
  return JSON.parse(JSON.stringify({ ...config, warnings: [] }));
}

test('print: a gateway and a list are printed as they can be read', () => {
  const text = `sources:
  - { name: gw, product: gateway, address: "gw.vendor.example:8000", upstream: { auth: { username: "me-{session}", password: hunter2 } } }
  - name: ours
    product: list
    file: p.txt
    refresh: 1m
    rotate: { url: "http://modem.example/r?id={port}&key=hunter2secret1", settle: 2s, check: "http://check.example/ip" }
  - name: other
    product: link
    url: "http://vendor.example/get"
    interval: 5s
    whitelist: { url: "http://vendor.example/bind?ip={ip}", myIp: 203.0.113.7 }
`;
  const printed = printConfig(parseConfig(text, 'noria.yaml', { env: {} }));
  expect(printed).not.toContain('hunter2');
  for (const line of ['settle: 2s', 'every: 10m', 'check: http://check.example/ip', 'myIp: 203.0.113.7'])
    expect(printed).toContain(line);
  const again = parseConfig(printed, 'noria.yaml', { env: {} });
  expect(printConfig(again)).toBe(printed);
});
