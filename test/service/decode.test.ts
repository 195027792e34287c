import { expect, test } from 'vitest';
import { hasCode, NoriaError } from '../../src/core/faults.ts';
import { isPrivateAddress } from '../../src/core/networks.ts';
import { Secret } from '../../src/core/secret.ts';
import { type DecodeOptions, decodeDraw, type RefuseAddress } from '../../src/service/decode.ts';
import { printEntry } from '../../src/service/fields.ts';
import { OPERATIONS } from '../../src/service/operations.ts';
import { GOLDEN } from './golden.ts';
import { decoded, reading } from './reading.ts';

const ENTRY = { ip: '192.0.2.1', port: 8000 };

function listOf(...entries: unknown[]): unknown {
  return { code: '10001', msg: '', data: { proxy_list: entries } };
}

function failure(body: unknown, more: Partial<DecodeOptions> = {}): NoriaError {
  try {
    decoded(body, more);
  } catch (error) {
    if (error instanceof NoriaError) return error;
    throw error;
  }
  throw new Error('it was understood');
}

test.each([
  [
    { ip: '192.0.2.1', port: '8000' },
    { host: '192.0.2.1', port: 8000 },
  ],
  [
    { ip: ' 192.0.2.1 ', port: ' 8000 ' },
    { host: '192.0.2.1', port: 8000 },
  ],
  [
    { ip: '2001:DB8::0:1', port: 1 },
    { host: '2001:db8::1', port: 1 },
  ],
  [
    { ip: '[2001:db8::1]', port: 65535 },
    { host: '2001:db8::1', port: 65535 },
  ],
])('decode: the entry %o is kept as %o', (raw, entry) => {
  expect(decoded(listOf(raw))).toEqual(expect.objectContaining({ entries: [entry], dropped: {} }));
});

test.each([
  [{ port: 8000 }, 'address'],
  [{ ip: '', port: 8000 }, 'address'],
  [{ ip: 'proxy.test', port: 8000 }, 'address'],
  [{ ip: '192.0.2.300', port: 8000 }, 'address'],
  [{ ip: '192.0.2', port: 8000 }, 'address'],
  [{ ip: '0300.0.2.1', port: 8000 }, 'address'],
  [{ ip: 3221225985, port: 8000 }, 'address'],
  [{ ip: 'fe80::1%eth0', port: 8000 }, 'address'],
  [{ ip: '192.0.2.1' }, 'port'],
  [{ ip: '192.0.2.1', port: 0 }, 'port'],
  [{ ip: '192.0.2.1', port: 65536 }, 'port'],
  [{ ip: '192.0.2.1', port: -1 }, 'port'],
  [{ ip: '192.0.2.1', port: 80.5 }, 'port'],
  [{ ip: '192.0.2.1', port: '80a' }, 'port'],
  [{ ip: '192.0.2.1', port: [80] }, 'port'],
  [null, 'address'],
  ['192.0.2.1:80', 'address'],
])('decode: the entry %o is dropped for its %s, and valid ones next to it are kept', (bad, reason) => {
  const { entries, dropped } = decoded(listOf(ENTRY, bad, { ...ENTRY, port: 8001 }));
  expect(entries).toEqual([
    { host: '192.0.2.1', port: 8000 },
    { host: '192.0.2.1', port: 8001 },
  ]);
  expect(dropped).toEqual({ [reason]: 1 });
});

test.each([
  '127.0.0.1',
  '127.9.8.7',
  '10.0.0.1',
  '192.168.1.1',
  '169.254.169.254',
  '::1',
  'fd00::1',
  '::ffff:127.0.0.1',
])('decode: the private address %s is dropped only if private addresses are refused', (ip) => {
  const strict: RefuseAddress = (host) => (isPrivateAddress(host) ? 'private' : undefined);
  expect(decoded(listOf({ ip, port: 80 }), { refuses: strict })).toMatchObject({
    entries: [],
    dropped: { private: 1 },
  });
  expect(decoded(listOf({ ip, port: 80 })).entries).toHaveLength(1);
});

test("decode: noria's own address is dropped, other ports of its host are not", () => {
  const refuses: RefuseAddress = (host, port) => (host === '192.0.2.1' && port === 8888 ? 'own' : undefined);
  const { entries, dropped } = decoded(listOf({ ip: '192.0.2.1', port: 8888 }, ENTRY), { refuses });
  expect(entries).toEqual([{ host: '192.0.2.1', port: 8000 }]);
  expect(dropped).toEqual({ own: 1 });
});

test('decode: of more than 1,000 entries the first 1,000 are kept', () => {
  const many = Array.from({ length: 1_005 }, (_, index) => ({ ip: '192.0.2.1', port: index + 1 }));
  const { entries, dropped } = decoded(listOf(...many));
  expect(entries).toHaveLength(1_000);
  expect(entries.at(-1)?.port).toBe(1_000);
  expect(dropped).toEqual({ excess: 5 });
});

test.each([
  [213, 213_000],
  ['213', 213_000],
  ['213.0', 213_000],
  [0, 0],
  [-1, 'unknown'],
  ['-1', 'unknown'],
  [-2, undefined],
  [1.5, undefined],
  ['soon', undefined],
  ['', undefined],
  [null, undefined],
  [1e9, undefined],
])('decode: a timeout of %j is a lifetime of %s', (timeout, lifetimeMs) => {
  expect(decoded(listOf({ ...ENTRY, timeout })).entries[0]?.lifetimeMs).toBe(lifetimeMs);
});

test.each([
  [true, true],
  [1, true],
  ['1', true],
  ['true', true],
  ['True', true],
  [false, false],
  [0, false],
  ['0', false],
  ['false', false],
  [null, undefined],
  ['', undefined],
])('decode: is_new_dedup %j means %s', (is_new_dedup, isNew) => {
  expect(decoded(listOf({ ...ENTRY, is_new_dedup })).entries[0]?.isNew).toBe(isNew);
});

test('decode: invalid fields are left out, unknown ones ignored', () => {
  const strange = { adr: '  ', outip: 'x', cometime: -5, lastscore: 'high', id: {}, level: 7, more: 'x' };
  expect(decoded(listOf({ ...ENTRY, ...strange })).entries).toEqual([
    { host: '192.0.2.1', port: 8000, level: '7' },
  ]);
});

test('decode: free text is one printable line of at most 200 characters', () => {
  const adr = `a\r\nb\u0000\u202ec\u2028d ${'x'.repeat(300)}`;
  const location = decoded(listOf({ ...ENTRY, adr })).entries[0]?.location ?? '';
  expect(location).toMatch(/^a b c d x+$/);
  expect(location).toHaveLength(200);
});

test.each([
  ['http', 'http'],
  ['https', 'http'],
  ['HTTPS', 'http'],
  ['socks4', 'socks4'],
  ['Socks5 ', 'socks5'],
])('decode: the protocol label %j of the free product means %s', (protocol, spoken) => {
  const { entries } = decoded(listOf({ ...ENTRY, protocol }), { product: 'free' });
  expect(entries[0]?.protocol).toBe(spoken);
});

test.each(['shadowsocks', 'http2', 5, 'constructor'])(
  'decode: an entry of the free product with the label %j is dropped',
  (protocol) => {
    const { entries, dropped } = decoded(listOf({ ...ENTRY, protocol }), { product: 'free' });
    expect({ entries, dropped }).toEqual({ entries: [], dropped: { protocol: 1 } });
  },
);

test('decode: an entry of the free product without a label is kept, and other products ignore the label', () => {
  for (const without of [{}, { protocol: null }, { protocol: '' }]) {
    const { entries } = decoded(listOf({ ...ENTRY, ...without }), { product: 'free' });
    expect(entries).toEqual([{ host: '192.0.2.1', port: 8000 }]);
  }
  const other = decoded(listOf({ ...ENTRY, protocol: 'shadowsocks' }), { product: 'exclusive' });
  expect(other.entries).toEqual([{ host: '192.0.2.1', port: 8000 }]);
});

test('decode: secrets in the text of the service are masked', () => {
  const { message } = decoded({ code: '12001', msg: 'akey 0123456789abcdef is wrong' });
  expect(message).toBe('akey [secret] is wrong');
});

test('decode: a long text of the service is cut', () => {
  expect(decoded({ code: '12001', msg: 'x'.repeat(9_000) }).message).toBe(`${'x'.repeat(500)}…`);
});

test.each([
  ['json', 'gateway says hello'],
  ['json', '"10001"'],
  ['json', '[]'],
  ['json', '{"msg":"no code"}'],
  ['json', '{"code":{},"data":[]}'],
  ['json', '{"code":"10001","data":{"count":1,"proxy_list":[{"ip":"192.0.2.1"'],
  ['json', '192.0.2.1:8000'],
  ['json', '<response><code>10001</code><proxy><ip>192.0.2.1</ip><port>80</port></proxy></response>'],
  ['xml', '{"code":"10001","data":{"proxy_list":[]}}'],
  ['xml', '192.0.2.1:8000'],
  ['xml', '<response><msg>no code</msg></response>'],
  ['text', '{"code":"10001","data":{"proxy_list":[{"ip":"192.0.2.1","port":80}]}}'],
  ['text', 'please log in'],
] as const)('decode: with the format %s the answer %j is an error that quotes it', (format, body) => {
  const error = failure(body, { format });
  expect(hasCode(error, 'service-protocol')).toBe(true);
  expect(error.message).toBe(`the answer of service.test is not in the requested format ${format}: ${body}`);
  expect(error.context).toEqual({ host: 'service.test' });
});

test('decode: an empty body is an error in JSON and XML, and no proxies in Text', () => {
  for (const body of ['', ' \r\n', '\ufeff']) {
    expect(failure(body, { format: 'json' }).message).toBe('the answer of service.test is empty');
    expect(failure(body, { format: 'xml' }).message).toBe('the answer of service.test is empty');
    expect(decoded(body, { format: 'text' })).toEqual(
      expect.objectContaining({ code: '10001', entries: [], dropped: {} }),
    );
  }
});

test('decode: a quote has 200 printable characters and no half of a secret', () => {
  const secrets = [new Secret('83aa400af464c76d'), new Secret('hunter22')];
  const error = failure(`${'x'.repeat(190)}\u0007${'83aa400af464c76d'} hunter22 ${'y'.repeat(500)}`, {
    secrets,
  });
  const quote = error.message.split(': ')[1] ?? '';
  expect(quote).toBe(`${'x'.repeat(190)} [secret] …`);
});

test.each([
  '<!DOCTYPE html><html></html>',
  '\ufeff\r\n<HTML><body>blocked</body>',
  '<head><title>403</title>',
])('decode: the web page %j is recognised in every format', (page) => {
  for (const format of ['json', 'xml', 'text'] as const) {
    const error = failure(page, { format });
    expect(error.code).toBe('service-blocked');
    expect(error.message).toMatch(/^service\.test sent a web page instead of an answer/);
  }
});

test('decode: an error in another format than the requested one is understood', () => {
  const json = '{"code":"12002","msg":"slow"}';
  const xml = '<response><code>12002</code><msg>slow</msg></response>';
  for (const [body, format] of [
    [json, 'xml'],
    [json, 'text'],
    [xml, 'json'],
    [xml, 'text'],
  ] as const) {
    expect(decoded(body, { format })).toMatchObject({ code: '12002', message: 'slow', entries: [] });
  }
});

test('decode: a byte order mark, white space and invalid UTF-8 are accepted', () => {
  const body = Buffer.concat([
    Buffer.from('\ufeff\r\n{"code":"10001","msg":"'),
    Buffer.from([0xbb, 0xf1, 0xc8, 0xa1]), // text in GBK
    Buffer.from('","data":{"proxy_list":[{"ip":"192.0.2.1","port":80}]}}\r\n'),
  ]);
  expect(decodeDraw(body, reading()).entries).toEqual([{ host: '192.0.2.1', port: 80 }]);
});

test('decode: a printed entry is read as the same entry', () => {
  const successes = GOLDEN.draws.filter(
    ({ format, expected }) => format === 'json' && expected.entries.length > 0,
  );
  expect(successes.length).toBeGreaterThan(7);
  for (const { product, expected } of successes) {
    const printed = expected.entries.map((entry) => printEntry(entry, OPERATIONS[product].fields));
    expect(decoded(listOf(...printed), { product }).entries).toEqual(expected.entries);
  }
});
