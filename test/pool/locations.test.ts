import { expect, test } from 'vitest';
import { couldDrawLocation } from '../../src/pool/locations.ts';

test.each([
  [{}, '上海', undefined],
  [{ adr: '广东,江苏' }, '广东', true],
  [{ adr: '广东,江苏' }, '广东省深圳', true],
  [{ adr: '广东省' }, '广东', true],
  [{ adr: '广东,江苏' }, '上海', false],
  [{ adr: '广东, 江苏' }, '上海市', false],
  [{ adr: '广东,江苏' }, '广州', undefined],
  [{ adr: '广东,电信' }, '上海', undefined],
  [{ adr: '深圳' }, '上海', undefined],
  [{ adr: '广东' }, '电信', undefined],
  [{ adr: '青海' }, '海南', undefined],
  [{ adr: '天津' }, '河北', undefined],
  [{ adr: '河北' }, '天津', undefined],
  [{ adr: '安徽' }, '湖南', undefined],
  [{ adr: 'US,JP' }, 'us', true],
  [{ nadr: '北京,上海' }, '上海', false],
  [{ nadr: '北京' }, '北京市朝阳', false],
  [{ nadr: '北京市朝阳' }, '北京', undefined],
  [{ adr: '广东, ,' }, '上海', false],
  [{ nadr: ',' }, '上海', undefined],
  [{ adr: 7 }, '上海', undefined],
])('locations: a source with %j could have %s: %s', (params, keyword, could) => {
  expect(couldDrawLocation(params, keyword)).toBe(could);
});
