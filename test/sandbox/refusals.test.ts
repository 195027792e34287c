/**
 * Each operation answers every code that the specification's table of errors lists for it, for the listed reason. The table
 * below is copied from the specification (Errors).
 */
import { expect, test } from 'vitest';
import { SANDBOX_PRODUCTS, type SandboxProduct } from '../../src/sandbox/operations.ts';
import { openSandbox } from '../../src/sandbox/sandbox.ts';
import type { ConditionChange } from '../../src/sandbox/settings.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { ask, call, connectThrough, draw, open, send, socksThrough } from './client.ts';

/** A condition of an instance, its code, and the operations (by number) for which the code is listed. */
const CONDITIONS: readonly {
  readonly condition: ConditionChange;
  readonly code: string;
  readonly operations: readonly number[];
}[] = [
  { condition: { expired: true }, code: '12005', operations: [1, 2, 3, 4, 5, 6, 8] },
  { condition: { expired: true }, code: '12004', operations: [7] },
  { condition: { frozen: true }, code: '12006', operations: [1, 2, 3, 4, 5, 6, 7, 8] },
  { condition: { terminalIpBound: false }, code: '12007', operations: [1, 2, 3, 4, 5, 6, 8] },
  { condition: { usageLimit: 0 }, code: '12008', operations: [2, 4, 5, 8] },
  { condition: { restricted: true }, code: '12008', operations: [6] },
  { condition: { distinctLimit: 0 }, code: '12010', operations: [1, 5] },
  { condition: { deviceAuthorised: false }, code: '12010', operations: [2, 3, 4] },
  { condition: { deviceAuthorised: false }, code: '12019', operations: [6] },
  { condition: { deviceAuthorised: false }, code: '17008', operations: [8] },
];

/** Product names in the order of the specification's operations. */
const productOf = (operation: number): SandboxProduct => SANDBOX_PRODUCTS[operation - 1] ?? 'free';

test.each(
  CONDITIONS.flatMap((row) => row.operations.map((operation) => ({ ...row, product: productOf(operation) }))),
)(
  '$product: $condition is answered with $code, and calls succeed again once it has passed',
  async ({ product, condition, code }) => {
    const sandbox = await open({ paceMs: 0, instances: [{ product }] });
    const { id, condition: before } = sandbox.instance(product);
    sandbox.setCondition(id, condition);
    expect((await ask(sandbox, product)).code).toBe(code);
    sandbox.setCondition(id, before);
    expect((await ask(sandbox, product)).code).toBe('10001');
    expect(sandbox.stats().codes).toEqual({ [code]: 1, '10001': 1 });
  },
);

test.each(SANDBOX_PRODUCTS)(
  '%s: 12001 for another key, 12004 for an unknown instance, 12003 for missing parameters',
  async (product) => {
    const sandbox = await open({ paceMs: 0 });
    const { password, akey } = sandbox.instance(product);
    const idName = { 'short-pure': 'inst_id', free: 'app_id' }[product as string] ?? 'api';
    for (const wrong of [password, akey.slice(0, 15), akey.toUpperCase()]) {
      expect((await ask(sandbox, product, { akey: wrong })).code, wrong).toBe('12001');
    }
    expect((await ask(sandbox, product, { [idName]: '209901010000009999' })).code).toBe('12004');
    expect((await ask(sandbox, product, { [idName]: undefined })).code).toBe('12003');
    expect((await ask(sandbox, product, { akey: undefined })).code).toBe('12003');
  },
);

/** Parameter values that the specification excludes, by operation. */
const WRONG_PARAMETERS: Readonly<
  Record<SandboxProduct, readonly Readonly<Record<string, string | undefined>>[]>
> = {
  'long-residential': [
    { count: undefined },
    { count: '0' },
    { count: '21' },
    { count: 'x' },
    { fitter: undefined },
    { fitter: '3' },
    { timespan: '5' },
    { timespan: '30' },
    { tunnel: '4' },
    { type: '4' },
  ],
  shared: [
    { pro: undefined },
    { pro: '3' },
    { order: undefined },
    { order: '3' },
    { timespan: '11' },
    { count: '21' },
  ],
  'short-socks5': [
    { timespan: undefined },
    { timespan: '6' },
    { timespan: '1.5' },
    { type: undefined },
    { count: '-1' },
  ],
  'short-classic': [{ timespan: undefined }, { timespan: '6' }, { type: '0' }, { count: '21' }],
  'residential-socks5': [{ fitter: '0' }, { timespan: '30' }, { tunnel: undefined }, { count: '21' }],
  'short-pure': [
    { count: undefined },
    { dedup: undefined },
    { dedup: '2' },
    { timespan: '0' },
    { timespan: '6' },
  ],
  free: [
    { dalu: undefined },
    { dalu: '2' },
    { protocol_type: '5' },
    { level_type: '6' },
    { lastcheck_type: '6' },
    { sleep_type: '6' },
    { alive_type: '8' },
    { return_type: undefined },
    { count: '101' },
  ],
  exclusive: [{ pro: undefined }, { pro: '0' }, { order: undefined }, { order: '3' }, { count: '21' }],
};

test.each(SANDBOX_PRODUCTS)(
  '%s: answers 12003 to parameters that are missing or out of range',
  async (product) => {
    const sandbox = await open({ paceMs: 0 });
    const wrong = WRONG_PARAMETERS[product];
    expect(wrong.length, 'nothing to try').toBeGreaterThan(0);
    for (const params of wrong) {
      expect((await ask(sandbox, product, params)).code, JSON.stringify(params)).toBe('12003');
    }
  },
);

test('sandbox: ignores unknown parameters', async () => {
  const sandbox = await open();
  expect((await ask(sandbox, 'short-classic', { fitter: '9', i: '1', adr: '' })).code).toBe('10001');
});

test('sandbox: refuses a body that is too large', async () => {
  const sandbox = await open();
  const answer = await call(sandbox, 'short-classic', { adr: 'x'.repeat(70_000) }, { method: 'POST' });
  expect([answer.status, answer.body]).toEqual([400, 'the body is larger than 65536 bytes\n']);
});

test('sandbox: throws if two instances have one id', async () => {
  const product = 'shared';
  const instances = [
    { product, id: 'same' },
    { product, id: 'same' },
  ] as const;
  await expect(openSandbox({ instances })).rejects.toThrow(/same id/);
});

test('12008 of operation 1: while too many connections through its proxies are open', async () => {
  const sandbox = await open({ paceMs: 0, instances: [{ product: 'long-residential', connectionLimit: 1 }] });
  const [entry] = await draw(sandbox, 'long-residential');
  if (entry === undefined) throw new Error('nothing was drawn');
  const { socket } = await connectThrough(entry, `127.0.0.1:${sandbox.target.port}`);
  expect((await ask(sandbox, 'long-residential')).code).toBe('12008');
  sandbox.setCondition(sandbox.instance('long-residential').id, { connectionLimit: 2 });
  expect((await ask(sandbox, 'long-residential')).code).toBe('10001');
  socket.destroy();
});

test('12008 of operation 5: once its proxies have relayed too many bytes', async () => {
  const sandbox = await open({
    paceMs: 0,
    instances: [{ product: 'residential-socks5', trafficLimitBytes: 10_000 }],
  });
  const [entry] = await draw(sandbox, 'residential-socks5');
  if (entry === undefined) throw new Error('nothing was drawn');
  const socket = await socksThrough(entry, `127.0.0.1:${sandbox.target.port}`, 5);
  socket.write('GET /bytes/20000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  for await (const _chunk of socket); // reads to the end
  expect((await ask(sandbox, 'residential-socks5')).code).toBe('12008');
});

test('12009: no proxy matches the parameters', async () => {
  const sandbox = await open({ paceMs: 0, members: 2 });
  expect((await ask(sandbox, 'short-classic', { adr: '火星' })).code).toBe('12009');
  expect((await ask(sandbox, 'long-residential', { fitter: '1' })).code).toBe('10001');
  expect((await ask(sandbox, 'long-residential', { fitter: '1' })).code, 'all were drawn today').toBe(
    '12009',
  );
});

test('12012: another client of a free application is refused until the first has been silent for two minutes', async () => {
  const clock = new ManualClock();
  const sandbox = await openSandbox({ clock });
  const from = async (address: string) => {
    const { code, msg } = await ask(sandbox, 'free', {}, { from: address });
    return { code, msg };
  };
  expect((await from('127.0.0.1')).code).toBe('10001');
  clock.advance(119_000);
  const refused = await from('127.0.0.2');
  expect(refused.code).toBe('12012');
  expect(refused.msg, 'names the previous client').toContain('127.0.0.1');
  clock.advance(1_000);
  expect((await from('127.0.0.2')).code).toBe('10001');
  clock.advance(1_000);
  expect((await from('127.0.0.1')).code).toBe('12012');
  await sandbox.close();
});

test.each([
  ['long-residential', 1, 1000],
  ['shared', 1, 1000],
  ['short-socks5', 1, 10_000],
  ['short-classic', 1, 10_000],
  ['residential-socks5', 1, 1000],
  ['short-pure', 10, 1000],
  ['free', 1, 1000],
  ['exclusive', 1, 1000],
] as const)('12002: %s allows %i call(s) in %i ms, from start to start', async (product, calls, withinMs) => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, instances: [{ product }] });
  const code = async () => (await ask(sandbox, product)).code;
  for (let n = 0; n < calls; n += 1) expect(await code()).toBe('10001');
  expect(await code()).toBe('12002');
  clock.advance(withinMs - 1);
  expect(await code(), 'one ms early').toBe('12002');
  clock.advance(1);
  for (let n = 0; n < calls; n += 1) expect(await code(), 'in time').toBe('10001');
  expect(sandbox.stats().paceBreaks).toBe(2);
});

test('12002: each instance has its own rate limit, which also counts calls with a wrong key', async () => {
  const sandbox = await open({
    instances: [{ product: 'short-classic' }, { product: 'short-classic', id: 'other' }],
  });
  expect((await ask(sandbox, 'short-classic')).code).toBe('10001');
  const { akey } = sandbox.instance('short-classic');
  expect((await ask(sandbox, 'short-classic', { api: 'other', akey })).code).toBe('10001');
  expect((await ask(sandbox, 'short-classic', { akey: 'wrong' })).code).toBe('12001');
  expect(sandbox.stats().paceBreaks, 'counted all the same').toBe(1);
});

test('operation 9: answers each of its codes', async () => {
  const sandbox = await open();
  const { id, akey } = sandbox.instance('exclusive');
  const code = async (params: Record<string, string | undefined>) => {
    const { body } = await send(`${sandbox.url}/ExclusiveProxy/GetAddibleServerList/`, {
      api: id,
      akey,
      ...params,
    });
    return JSON.parse(body).code;
  };
  expect(await code({})).toBe('10001');
  expect(await code({ akey: 'wrong' })).toBe('14001');
  expect(await code({ akey: undefined })).toBe('14002');
  expect(await code({ api: sandbox.instance('shared').id }), 'of another product').toBe('14003');
  expect(await code({ areaKeyword: '火星' })).toBe('14006');
  sandbox.setCondition(id, { frozen: true });
  expect(await code({})).toBe('14005');
  sandbox.setCondition(id, { expired: true });
  expect(await code({})).toBe('14004');
  expect(sandbox.stats().paceBreaks, 'it has no pace').toBe(0);
});

test('operation 9: areaKeyword accepts several keywords', async () => {
  const sandbox = await open();
  const { id, akey } = sandbox.instance('exclusive');
  const params = { api: id, akey, areaKeyword: '苏州,深圳' };
  const { body } = await send(`${sandbox.url}/ExclusiveProxy/GetAddibleServerList/`, params);
  const areas: string[] = JSON.parse(body).serverList.map(({ area }: { area: string }) => area);
  expect(areas.toSorted()).toEqual(['深圳电信', '苏州电信'].toSorted());
});

test('operation 10: answers each of its codes', async () => {
  const sandbox = await open({
    instances: [{ product: 'exclusive' }],
    account: { username: 'me', password: '12345678' },
  });
  const code = async (params: Record<string, string | undefined>) => {
    const good = { username: 'me', password: '83aa400af464c76d' }; // characters 9 to 24 of the MD5 hash of 12345678
    const { body } = await send(`${sandbox.url}/ExclusiveProxy/GetInstanceList/`, { ...good, ...params });
    return JSON.parse(body).code;
  };
  expect(await code({})).toBe('10001');
  expect(await code({ password: undefined })).toBe('18001');
  expect(await code({ status: '4' })).toBe('18001');
  expect(await code({ password: '12345678' }), 'the password itself').toBe('18002');
  expect(await code({ username: 'you' })).toBe('18002');
  expect(await code({ status: '3' }), 'none has expired').toBe('18003');
});

test('operation 10: status selects near expiry, not expired or expired', async () => {
  const sandbox = await open({
    instances: [
      { product: 'exclusive', id: 'fine', members: 7, auth: 'password' },
      { product: 'exclusive', id: 'soon', daysLeft: 3 },
      { product: 'exclusive', id: 'over', expired: true },
      { product: 'shared' },
    ],
    clock: new ManualClock(Date.UTC(2030, 0, 1, 20)),
  });
  const { username, key: password } = sandbox.account;
  const list = async (status?: string): Promise<Record<string, unknown>[]> => {
    const params = { username, password, status };
    return JSON.parse((await send(`${sandbox.url}/ExclusiveProxy/GetInstanceList/`, params)).body)
      .instance_list;
  };
  const ids = async (status?: string) => (await list(status)).map(({ instanceId }) => instanceId);
  expect(await ids()).toEqual(['fine', 'soon', 'over']);
  expect(await ids('1')).toEqual(['soon']);
  expect(await ids('2')).toEqual(['fine', 'soon']);
  expect(await ids('3')).toEqual(['over']);
  const [fine, , over] = await list();
  expect(fine).toMatchObject({ status: '正常', serverMaxCount: 7, serverCount: 0, authorizationMode: 1 });
  // In 30 days, in the service's time zone (UTC+8), where it is already the next morning.
  expect(fine?.['expirationTime']).toBe('2030-02-01T04:00:00');
  expect(over).toMatchObject({ status: '已过期', authorizationMode: 0 });
});
