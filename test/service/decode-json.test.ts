import { expect, test } from 'vitest';
import { readJson } from '../../src/service/decode-json.ts';
import { decoded, reading } from './reading.ts';

const ENTRY = { ip: '192.0.2.1', port: 8000 };

test.each([
  ['the code as a text', { code: '10001', data: { proxy_list: [ENTRY] } }],
  ['the code as a number', { code: 10001, data: { proxy_list: [ENTRY] } }],
  ['data that is itself the list', { code: '10001', data: [ENTRY] }],
  ['a count that does not fit the list', { code: '10001', data: { count: 7, proxy_list: [ENTRY] } }],
  ['more members than are known', { code: '10001', data: { proxy_list: [ENTRY], page: 1 }, took: 3 }],
])('json: it reads %s', (_, body) => {
  expect(decoded(body)).toMatchObject({ code: '10001', entries: [{ host: '192.0.2.1', port: 8000 }] });
});

test.each([
  { code: '10001' },
  { code: '10001', data: null },
  { code: '10001', data: '' },
  { code: '10001', data: [] },
  { code: '10001', data: {} },
  { code: '10001', data: { count: 0 } },
  { code: '10001', data: { count: '0', proxy_list: null } },
  { code: '10001', data: { proxy_list: [] } },
])('json: %o is a success without entries', (body) => {
  expect(decoded(body)).toEqual(expect.objectContaining({ code: '10001', entries: [], dropped: {} }));
});

test.each([
  { code: '10001', data: 'text' },
  { code: '10001', data: 7 },
  { code: '10001', data: { count: 3 } },
  { code: '10001', data: { proxy_list: 'none' } },
])('json: the success %o is not understood', (body) => {
  expect(readJson(JSON.stringify(body), reading())).toBeUndefined();
});

test.each([undefined, null, '', [], {}, 'text', 7, { proxy_list: 'x' }, [ENTRY]])(
  'json: an error is read with any data: %o',
  (data) => {
    expect(decoded({ code: '12009', msg: 'none', data })).toEqual(
      expect.objectContaining({
        code: '12009',
        message: 'none',
        entries: [],
        dropped: {},
      }),
    );
  },
);

test('json: counters are read inside data first, then next to it, as numbers or text', () => {
  const inside = { surplus_count: '9', update_count: 2, active_count: 3, today_count: 4, proxy_list: [] };
  expect(decoded({ code: '10001', data: inside }).quota).toEqual({
    remaining: 9,
    added: 2,
    active: 3,
    today: 4,
  });
  expect(decoded({ code: '10001', dedup_count: 1, today_left_count: 0, data: [] }).quota).toEqual({
    added: 1,
    remaining: 0,
  });
  expect(decoded({ code: '10001', today_count: 1, data: { today_count: 2 } }).quota).toEqual({ today: 2 });
});

test('json: invalid counters are left out', () => {
  const data = { surplus_count: -1, update_count: 'many', active_count: null, today_count: 1.5 };
  expect(decoded({ code: '10001', data }).quota).toEqual({});
});

test('json: a list with 100,000 levels is rejected without a crash', () => {
  const deep = '['.repeat(100_000);
  expect(readJson(deep + ']'.repeat(100_000), reading())).toBeUndefined();
  expect(readJson(deep, reading())).toBeUndefined();
});

test('json: inherited properties are not fields', () => {
  const body =
    '{"code":"10001","data":[{"ip":"192.0.2.1","port":80,"__proto__":{"timeout":5},"constructor":1}]}';
  expect(decoded(body).entries).toEqual([{ host: '192.0.2.1', port: 80 }]);
});
