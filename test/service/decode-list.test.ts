import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { decodeList } from '../../src/service/decode.ts';
import { reading } from './reading.ts';

const areas = (body: unknown) =>
  decodeList('areas', Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)), reading());

test('lists: numbers may be text; unknown fields and records without their first field are left out', () => {
  const serverList = [
    { area: '福建', count: '12', score: -1, more: 'x' },
    { area: 7, count: 'many' },
    { count: 3 },
    null,
    'x',
  ];
  expect(areas({ code: 10001, msg: 'ok', serverList })).toEqual({
    code: '10001',
    message: 'ok',
    records: [{ area: '福建', count: 12, score: -1 }, { area: '7' }],
  });
});

test('lists: a success without a list is empty, and so is an error', () => {
  expect(areas({ code: '10001' }).records).toEqual([]);
  expect(areas({ code: '10001', serverList: null }).records).toEqual([]);
  expect(areas({ code: '14001', serverList: [{ area: 'x' }] })).toEqual({
    code: '14001',
    message: '',
    records: [],
  });
});

test('lists: at most 1,000 records are kept', () => {
  const serverList = Array.from({ length: 1_200 }, (_, index) => ({ area: `a${index}` }));
  expect(areas({ code: '10001', serverList }).records).toHaveLength(1_000);
});

test.each([
  ['192.0.2.1:80', 'service-protocol', /is not JSON with a code: 192\.0\.2\.1:80$/],
  ['', 'service-protocol', /is not JSON with a code$/],
  ['{"serverList":[]}', 'service-protocol', /is not JSON with a code/],
  ['{"code":"10001","serverList":{}}', 'service-protocol', /has no list in serverList/],
  ['<html>0123456789abcdef</html>', 'service-blocked', /web page.*: <html>\[secret\]<\/html>$/],
])('lists: %j is an error', (body, code, message) => {
  const attempt = () => areas(body);
  expect(attempt).toThrow(NoriaError);
  expect(attempt).toThrow(message);
  expect(attempt).toThrow(expect.objectContaining({ code }));
});
