/**
 * Answers of up to 1 MiB that would keep the parser busy for seconds. A limit ends each of them early, and the failure names it.
 */
import { expect, test } from 'vitest';
import { hasCode } from '../../src/core/faults.ts';
import type { DecodeOptions } from '../../src/service/decode.ts';
import { decoded } from './reading.ts';

const MIB = 1_048_576;
const TOO_MANY_VALUES = 'it has more than 32000 values or more than 32 levels';

function fill(before: string, unit: string, after: string): string {
  return before + unit.repeat((MIB - before.length - after.length) / unit.length) + after;
}

function nested(open: string, close: string, content: string): string {
  const levels = Math.floor((MIB - content.length) / (open.length + close.length));
  return open.repeat(levels) + content + close.repeat(levels);
}

const distinct = (count: number, write: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => write(index));

const XML: Partial<DecodeOptions> = { format: 'xml' };
const LAYOUT: Partial<DecodeOptions> = {
  product: 'exclusive',
  format: 'text',
  textLayout: '{adr},{area},{ip}:{port}',
};

test.each<[string, Partial<DecodeOptions>, string, string]>([
  ['XML, deeply nested', XML, nested('<a>', '</a>', '<code>10001</code>'), TOO_MANY_VALUES],
  ['XML, never closed', XML, fill('', '<a>', ''), TOO_MANY_VALUES],
  ['XML, many elements', XML, fill('<r><code>10001</code>', '<a/>', '</r>'), TOO_MANY_VALUES],
  ['XML, many attributes', XML, `<r ${distinct(90_000, (n) => `a${n}="1"`).join(' ')}/>`, TOO_MANY_VALUES],
  ['XML, many references', XML, fill('<r><code>10001</code><msg>', '&amp;', '</msg></r>'), TOO_MANY_VALUES],
  ['XML, many CDATA sections', XML, fill('<r><code>10001</code>', '<![CDATA[x]]>', '</r>'), TOO_MANY_VALUES],
  ['XML, many comments', XML, fill('<r><code>10001</code>', '<!---->', '</r>'), TOO_MANY_VALUES],
  ['JSON, deeply nested', {}, `{"code":"10001","data":${nested('[', ']', '')}}`, TOO_MANY_VALUES],
  ['JSON, many entries', {}, fill('{"code":"10001","data":[', '{},', '{}]}'), TOO_MANY_VALUES],
  [
    'JSON, many fields',
    {},
    `{"code":"10001","data":[{${distinct(90_000, (n) => `"k${n}":1`).join()}}]}`,
    TOO_MANY_VALUES,
  ],
  ['Text, many lines', { format: 'text' }, fill('', '192.0.2.1:80\n', ''), 'it has more than 32000 lines'],
  ['Text, many bad lines', { format: 'text' }, fill('', 'x\n', ''), 'it has more than 32000 lines'],
  [
    'Text, lines that match a layout in many ways',
    LAYOUT,
    fill('', `${','.repeat(200)}\n`, ''),
    'it has more than 1000 lines',
  ],
])('decode: refuses an answer of 1 MiB that exceeds a limit: %s', (_, options, body, limit) => {
  let failure: unknown;
  try {
    decoded(body, options);
  } catch (error) {
    failure = error;
  }
  expect(hasCode(failure, 'service-protocol') && failure.message).toContain(
    `the answer of service.test is too large (${limit}); ask for fewer proxies: `,
  );
});

test.each<[string, Partial<DecodeOptions>, string]>([
  ['a long attribute', XML, fill('<r><code>12009</code><p a="', 'x', '"/></r>')],
  ['a long name', XML, `<r><code>12009</code><${'x'.repeat(MIB)}/></r>`],
  ['a long text', XML, fill('<r><code>12009</code><msg>', ' x', '</msg></r>')],
  ['a long CDATA section', XML, fill('<r><code>12009</code><msg><![CDATA[', ']', ']]></msg></r>')],
  ['a long JSON string', {}, fill('{"code":"12009","msg":"', '\\u0020[', '"}')],
])('decode: reads an answer of 1 MiB within the limits: %s', (_, options, body) => {
  const { code, message } = decoded(body, options);
  expect(code).toBe('12009');
  expect(message.length).toBeLessThanOrEqual(501);
});

test('decode: an answer of 1,000 entries with all fields is within the limits', () => {
  const fields = distinct(12, (n) => `field${n}`);
  const entry = { ip: '192.0.2.1', port: 80, ...Object.fromEntries(fields.map((name) => [name, 'a,b{c}['])) };
  const entries = distinct(1_000, () => '').map(() => entry);
  expect(decoded({ code: '10001', data: { proxy_list: entries } }).entries).toHaveLength(1_000);
  const xml = `<p><ip>192.0.2.1</ip><port>80</port>${fields.map((name) => `<${name}>x</${name}>`).join('')}</p>`;
  const body = `<r><code>10001</code><list>${xml.repeat(1_000)}</list></r>`;
  expect(decoded(body, XML).entries).toHaveLength(1_000);
});

test('decode: a quote of a long text contains no part of a secret, wherever the quote is cut', () => {
  for (let length = 1_500; length < 1_650; length += 1) {
    const text = `${' '.repeat(length)}0123456789abcdef${'x'.repeat(5_000)}`;
    expect(() => decoded(`?${text}`)).toThrow(/^(?!.*012)/);
  }
});
