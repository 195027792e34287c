import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compileLayout } from '../../src/service/decode-text.ts';
import { isWireField } from '../../src/service/fields.ts';
import { OPERATIONS, PRODUCTS } from '../../src/service/operations.ts';
import { runsOf } from '../support/properties.ts';
import { decoded } from './reading.ts';
import { readEveryWay } from './validity.ts';

const RUNS = { numRuns: runsOf(100) };

const ipv4 = fc.ipV4();
const port = fc.integer({ min: 1, max: 65_535 });
/** The text of a location, without line breaks, markup, the separators of the layouts below, and surrounding space. */
const label = fc.stringMatching(/^[a-z\u4e00-\u9fa5]{1,8}( [a-z\u4e00-\u9fa5]{1,8})?$/);
const entry = fc.record(
  { ip: ipv4, port, adr: label, timeout: fc.integer({ min: -1, max: 1_800 }), cometime: fc.nat(90_000) },
  { requiredKeys: ['ip', 'port'] },
);
const whole = fc.record({
  ip: ipv4,
  port,
  adr: label,
  timeout: fc.integer({ min: -1, max: 1_800 }),
  cometime: fc.nat(90_000),
});
type Printed = { ip: string; port: number; adr?: string; timeout?: number; cometime?: number };

/** Returns the expected result for an entry, according to the specification of its fields. */
function expectedEntry({ ip, port: number, adr, timeout, cometime }: Printed): object {
  return {
    host: ip,
    port: number,
    ...(adr === undefined ? {} : { location: adr }),
    ...(timeout === undefined ? {} : { lifetimeMs: timeout === -1 ? 'unknown' : timeout * 1_000 }),
    ...(cometime === undefined ? {} : { onlineMs: cometime * 1_000 }),
  };
}

test('parsers: any bytes are a valid answer or a fault of the service', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      readEveryWay(bytes);
    }),
    RUNS,
  );
});

test('parsers: any text with the syntax characters of the formats is a valid answer or a fault of the service', () => {
  const piece = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    '<',
    '>',
    '</',
    '/>',
    '"',
    ':',
    ',',
    '#',
    '@',
    '\r\n',
    '\n',
    ' ',
    '&',
    ';',
    '-1',
    '"code"',
    '"10001"',
    '"data"',
    '"proxy_list"',
    '"ip"',
    '"port"',
    '192.0.2.1',
    '[::1]',
    '8000',
    '12009',
    '<r>',
    '</r>',
    '<code>',
    '</code>',
    '<ip>',
    '</ip>',
    '<port>',
    '</port>',
    '<![CDATA[',
    ']]>',
    '<!--',
    '-->',
    '\u0000',
    '\u2028',
    '电信',
    '192.0.2.1:8000',
    '[x]192.0.2.1:8000@http#y',
  );
  const text = fc.array(fc.oneof(piece, fc.string({ maxLength: 4 })), { maxLength: 40 });
  fc.assert(
    fc.property(text, (pieces) => {
      readEveryWay(Buffer.from(pieces.join('')));
    }),
    RUNS,
  );
});

test('parsers: any JSON value of any field is a valid answer or a fault of the service', () => {
  const anything = fc.jsonValue({ maxDepth: 3 });
  const body = fc.record(
    {
      code: fc.oneof(fc.constantFrom('10001', 10001, '12009'), anything),
      msg: anything,
      data: fc.oneof(
        anything,
        fc.record({
          surplus_count: anything,
          proxy_list: fc.oneof(
            anything,
            fc.array(
              fc.record({
                ip: fc.oneof(ipv4, anything),
                port: fc.oneof(port, anything),
                timeout: anything,
                protocol: anything,
              }),
            ),
          ),
        }),
      ),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(body, (value) => {
      readEveryWay(Buffer.from(JSON.stringify(value)));
    }),
    RUNS,
  );
});

test('parsers: entries printed as JSON are read back', () => {
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 20 }), fc.boolean(), (entries, asText) => {
      const proxy_list = entries.map((one) =>
        asText ? Object.fromEntries(Object.entries(one).map(([name, value]) => [name, String(value)])) : one,
      );
      const answer = decoded({ code: '10001', msg: '', data: { count: entries.length, proxy_list } });
      expect(answer).toEqual(expect.objectContaining({ entries: entries.map(expectedEntry), dropped: {} }));
    }),
    RUNS,
  );
});

test('parsers: entries printed as XML elements or attributes are read back', () => {
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 20 }), fc.boolean(), (entries, attributes) => {
      const proxies = entries.map((one) => {
        const values = Object.entries(one);
        return attributes
          ? `<proxy ${values.map(([name, value]) => `${name}="${value}"`).join(' ')}/>`
          : `<proxy>${values.map(([name, value]) => `<${name}>${value}</${name}>`).join('')}</proxy>`;
      });
      const body = `<answer><code>10001</code><data><list>${proxies.join('\n')}</list></data></answer>`;
      expect(decoded(body, { format: 'xml' })).toEqual(
        expect.objectContaining({ entries: entries.map(expectedEntry), dropped: {} }),
      );
    }),
    RUNS,
  );
});

test('parsers: entries printed with a text layout are read back, in any order and with any separators', () => {
  const separator = fc.constantFrom(',', ';', ' ', '\t', '|', ' - ', '::', '#', '->', '$1', '(', '\\', '\n');
  const layout = fc
    .tuple(
      fc.shuffledSubarray(['ip', 'port', 'adr', 'timeout', 'cometime'] as const, { minLength: 5 }),
      fc.array(separator, { minLength: 4, maxLength: 4 }),
      fc.constantFrom('', ';', '||'),
    )
    .map(([tags, between, end]) => tags.map((tag, index) => `{${tag}}${between[index] ?? end}`).join(''));
  fc.assert(
    fc.property(layout, fc.array(whole, { minLength: 1, maxLength: 10 }), (textLayout, entries) => {
      const body = entries
        .map((one) => textLayout.replace(/\{(\w+)\}/g, (_, tag: keyof Printed) => String(one[tag])))
        .join('\r\n');
      const answer = decoded(body, { format: 'text', textLayout });
      expect(answer).toEqual(expect.objectContaining({ entries: entries.map(expectedEntry), dropped: {} }));
    }),
    RUNS,
  );
});

test('parsers: any text is a valid layout or a problem, and a valid layout reads any text', () => {
  const piece = fc.oneof(
    fc.constantFrom('{ip}', '{port}', '{adr}', '{timeout}', '{', '}', ':', ',', '.*', '(?', '\n', '\\'),
    fc.string({ maxLength: 3 }),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 8 }), fc.string({ maxLength: 60 }), (pieces, text) => {
      const { read, problem } = compileLayout('short-classic', pieces.join(''));
      if (read === undefined) expect(problem).not.toBe('');
      else expect(read(text, 0)?.end ?? 0).toBeLessThanOrEqual(text.length);
    }),
    { numRuns: runsOf(1_000) },
  );
});

test('parsers: every product reads a layout with all of its fields', () => {
  for (const product of PRODUCTS) {
    const { fields } = OPERATIONS[product];
    expect(fields.every(isWireField)).toBe(true);
    expect(compileLayout(product, fields.map((field) => `{${field}}`).join(',')).problem).toBeUndefined();
  }
});
