import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { faultTexts, languageOf, translate } from '../../src/core/chinese.ts';
import { FAULTS, type FaultCode } from '../../src/core/faults.ts';
import { CODES } from '../../src/service/codes.ts';

const inChinese = (text: string) => translate(text, 'zh-CN');

test.each([
  ['zh', 'zh-CN'],
  ['zh-CN,zh;q=0.9,en;q=0.8', 'zh-CN'],
  ['zh_CN.UTF-8', 'zh-CN'],
  ['en-US,zh;q=0.5', 'en'],
  ['C.UTF-8', 'en'],
  ['', 'en'],
  [undefined, 'en'],
] as const)('chinese: the language of %j is %s', (preference, language) => {
  expect(languageOf(preference)).toBe(language);
});

test('chinese: every summary and advice of the service codes is translated', () => {
  const texts = Object.values(CODES).flatMap((codes) =>
    Object.values(codes).flatMap(({ summary, advice }) => [summary, advice].filter((text) => text !== '')),
  );
  expect(texts.length).toBeGreaterThan(100);
  const missing = texts.filter(
    (text) => !/^[^a-z]*\p{Script=Han}/u.test(inChinese(text)) && inChinese(text) === text,
  );
  expect([...new Set(missing)]).toEqual([]);
});

test('chinese: a fault has the texts of its code', () => {
  for (const code of Object.keys(FAULTS) as FaultCode[]) {
    const { summary, advice } = faultTexts(code, 'zh-CN');
    expect([summary, advice]).toEqual(FAULTS[code].chinese);
    expect([inChinese(FAULTS[code].summary), inChinese(FAULTS[code].advice)]).toEqual([summary, advice]);
  }
});

test('chinese: docs/zh-CN/errors.md has the texts of the table', () => {
  const rows = readFileSync('docs/zh-CN/errors.md', 'utf8')
    .split('\n')
    .filter((line) => /^\| `[a-z-]+` \|/.test(line))
    .map((line) => line.replaceAll('`', '').slice(2, -2).split(' | '));
  expect(rows.length).toBe(Object.keys(FAULTS).length);
  for (const cells of rows) {
    const [summary] = FAULTS[cells[0] as FaultCode].chinese;
    expect(`${cells.at(-2)}。`).toBe(summary.replaceAll('`', ''));
  }
});

test.each([
  ['12001: The key is wrong.', '12001：密钥错误。'],
  ['source city: 12001: The key is wrong; and 2 more problems', '来源 city：12001：密钥错误；另有 2 个问题'],
  ['waiting 10 s: the pace does not allow the call earlier', '等待 10 秒：提取间隔不允许更早调用'],
  ['the pace allows one call every 10 s', '提取间隔允许每 10 秒调用一次'],
  [
    'no client request for 5 min; the next request starts a draw',
    '5 分钟没有客户端请求；下一个请求会开始提取',
  ],
  [
    'Source city: halted (12001: The key is wrong.), next draw in 5 s.',
    '来源 city：已停止（12001：密钥错误。），5 秒后提取。',
  ],
  ['3 of 5 members refused the credentials', '5 个成员中有 3 个拒绝了认证信息'],
  [
    'Renew the instance in the console of the service. Then run noria resume city, or noria reload after a change of the configuration.',
    '在服务的控制台续费实例。然后运行 noria resume city；如果修改了配置，运行 noria reload。',
  ],
  [
    'The key is wrong. Another noria of the fleet got this answer.',
    '密钥错误。这是集群中另一个 noria 得到的返回。',
  ],
  [
    'code 12005: The instance does not exist or has expired. Check instance and product of the source, or renew the instance. (message of the service: no such app)',
    '返回码 12005：实例不存在或已过期。检查来源的 instance 和 product，或续费实例。（服务的消息：no such app）',
  ],
  [
    "127.0.0.1:1 refused the connection after 3 ms; check service.baseUrl, or the source's own baseUrl, host or url, and whether the service is up",
    '127.0.0.1:1 在 3 毫秒后拒绝了连接；检查 service.baseUrl，或来源自己的 baseUrl、host 或 url，以及服务是否在运行',
  ],
  [
    "could not resolve extract.example (after 12 ms); check the host name and this machine's DNS",
    '无法解析 extract.example（12 毫秒后）；检查主机名和本机的 DNS',
  ],
  [
    'extract.example did not answer within 10s (waiting for the start of the answer); check the network, or raise service.timeout',
    'extract.example 在 10s 内没有答复（等待答复的开头）；检查网络，或增大 service.timeout',
  ],
  ['code too-fast: The service is called too often.', '返回码 too-fast：调用频率过快。'],
  ['source city: The extraction service did not answer', '来源 city：提取服务没有答复'],
  [
    'the front proxy proxy.example:3128 did not answer (no answer within 500 ms)',
    '前置代理 proxy.example:3128没有答复（no answer within 500 ms）',
  ],
  [
    '3 members tried in 20 ms: 2 could not be reached, 1 closed the connection.',
    '在 20 毫秒内试了 3 个成员：2 个无法连接，1 个关闭了连接。',
  ],
  [
    '2 members tried in 17 ms: 1 could not reach the target, 1 could not be reached',
    '在 17 毫秒内试了 2 个成员：1 个无法到达目标，1 个无法连接',
  ],
  [
    'serving: 1 member is usable; city: 12001: The key is wrong; cheap: the daily budget of 1 distinct IP is used up',
    '工作正常：1 个成员可用；city：12001：密钥错误；cheap：每日预算 1 个去重 IP 已用完',
  ],
  ['the list has 3 members; line 4 is not a proxy', '列表有 3 个成员；line 4 is not a proxy'],
  ['Nobody wrote this (or did somebody?), then went', 'Nobody wrote this (or did somebody?), then went'],
  ['Nobody wrote this. The key is wrong.', 'Nobody wrote this.密钥错误。'],
  ['Nobody wrote this', 'Nobody wrote this'],
])('chinese: %j', (english, chinese) => {
  expect(inChinese(english)).toBe(chinese);
  expect(translate(english, 'en')).toBe(english);
});

test('chinese: a long text from elsewhere is not matched', () => {
  const text = `source x: ${'a: '.repeat(10_000)}`;
  const before = performance.now();
  expect(inChinese(text)).toBe(text);
  const short = `source ${'a '.repeat(480)}`;
  expect(inChinese(short)).toBe(short);
  expect(performance.now() - before).toBeLessThan(200);
});
