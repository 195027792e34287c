import { describe, expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import type { DialFailure } from '../../../src/dialer/contract.ts';
import { until } from '../../support/until.ts';
import { HANDSHAKE_TIMEOUT_MS, Stage } from './socks-stage.ts';

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');
const counted = (text: string): Buffer =>
  Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);

const GREETING_NONE = hex('05 01 00');
const GREETING_PASSWORD = hex('05 01 02');
const GREETING_BOTH = hex('05 02 00 02');
const credentials = (username: string, password = 'x'): Buffer =>
  Buffer.concat([hex('01'), counted(username), counted(password)]);
/** CONNECT to a name, on port 443. */
const request = (host = 'example.com'): Buffer =>
  Buffer.concat([hex('05 01 00 03'), counted(host), hex('01bb')]);
/** SOCKS4a CONNECT to a name, on port 80. */
const request4a = (userId = '', host = 'example.com'): Buffer =>
  Buffer.concat([hex('04 01 0050 00000001'), Buffer.from(`${userId}\0${host}\0`)]);

const METHOD_NONE = '0500';
const METHOD_PASSWORD = '0502';
const NO_METHOD = '05ff';
const AUTH_OK = '0100';
const AUTH_FAILED = '0101';
const reply5 = (code: string): string => `05${code}0001000000000000`;
const reply4 = (code: string): string => `00${code}000000000000`;

describe('socks handshake: SOCKS5', () => {
  test('socks handshake: works without credentials, message by message', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(GREETING_NONE);
    expect((await client.receive(2)).toString('hex')).toBe(METHOD_NONE);
    client.send(request());
    const dial = await stage.dialed();
    expect(dial.request).toEqual({
      target: { host: 'example.com', port: 443, kind: 'name', text: 'example.com:443' },
      routing: { client: 'local' },
      use: 'tunnel',
    });
    await dial.succeed();
    expect((await client.receive(10)).toString('hex')).toBe(reply5('00'));
    client.send('hello');
    expect((await client.receive(5)).toString()).toBe('hello');
    client.socket.end();
    expect((await client.toEnd()).length).toBe(0);
    expect(await stage.outcome()).toBe('ok');
    expect(dial.ended).toEqual([{ cut: false, answered: true }]);
    expect(stage.events('tunnel.closed')).toMatchObject([{ kind: 'tunnel', bytesUp: 5, bytesDown: 5 }]);
    expect(stage.events('connection.closed')).toMatchObject([{ protocol: 'socks5', outcome: 'ok' }]);
  });

  test('socks handshake: selects username/password if both methods are offered, for the routing options', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(GREETING_BOTH);
    expect((await client.receive(2)).toString('hex')).toBe(METHOD_PASSWORD);
    client.send(credentials('me-session-abc-life-30s'));
    expect((await client.receive(2)).toString('hex')).toBe(AUTH_OK);
    client.send(request());
    expect((await stage.dialed()).request.routing).toMatchObject({ session: 'abc', minLifeMs: 30_000 });
  });

  test('socks handshake: the session mode target-host uses the target', async () => {
    const stage = await Stage.open({ session: 'target-host', users: { ann: 'a' } });
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_PASSWORD, credentials('ann', 'a'), request('WWW.example.com')]));
    expect((await stage.dialed()).request.routing).toMatchObject({
      client: 'ann',
      session: 'ann:target-host=www.example.com',
    });
  });

  test('socks handshake: accepts the whole handshake and early bytes at once', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_PASSWORD, credentials('me'), request(), Buffer.from('early ')]));
    const dial = await stage.dialed();
    client.send('birds');
    await dial.succeed(Buffer.from('banner '));
    expect((await client.receive(14)).toString('hex')).toBe(METHOD_PASSWORD + AUTH_OK + reply5('00'));
    const reply = (await client.receive(18)).toString();
    expect(reply).toContain('banner ');
    expect(reply.replace('banner ', '')).toBe('early birds');
  });

  test('socks handshake: accepts the handshake byte by byte', async () => {
    const stage = await Stage.open({ users: { ann: 'a' } });
    const client = await stage.connect();
    client.socket.setNoDelay(true);
    for (const byte of Buffer.concat([GREETING_BOTH, credentials('ann-session-s', 'a'), request()])) {
      client.send(Buffer.from([byte]));
      await new Promise((next) => setImmediate(next));
    }
    const dial = await stage.dialed();
    expect(dial.request.routing).toMatchObject({ client: 'ann', session: 'ann:s' });
    await dial.succeed();
    expect((await client.receive(14)).toString('hex')).toBe(METHOD_PASSWORD + AUTH_OK + reply5('00'));
  });

  test('socks handshake: early bytes are buffered up to a limit, and none is lost', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    const payload = Buffer.alloc(8 * 1024 * 1024, 'noria');
    client.send(Buffer.concat([GREETING_NONE, request()]));
    const dial = await stage.dialed();
    client.send(payload);
    await until('the client to be paused', () => stage.accepted[0]?.isPaused() ?? false);
    expect(stage.accepted[0]?.bytesRead).toBeLessThan(512 * 1024);
    await dial.succeed();
    await client.receive(12);
    expect((await client.receive(payload.length)).equals(payload)).toBe(true);
  });

  test('socks handshake: a client that half-closes after its early bytes is still answered', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_NONE, request(), Buffer.from('question')]));
    client.socket.end();
    await (await stage.dialed()).succeed();
    expect((await client.toEnd()).subarray(12).toString()).toBe('question');
  });
});

describe('socks handshake: SOCKS4', () => {
  test('socks handshake: the user id has the routing options, and the name goes to the member', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(Buffer.concat([request4a('me-session-abc'), Buffer.from('early')]));
    const dial = await stage.dialed();
    expect(dial.request).toMatchObject({
      target: { host: 'example.com', port: 80, kind: 'name', text: 'example.com:80' },
      routing: { client: 'local', session: 'abc' },
      use: 'tunnel',
    });
    await dial.succeed();
    expect((await client.receive(8)).toString('hex')).toBe(reply4('5a'));
    expect((await client.receive(5)).toString()).toBe('early');
    client.socket.end();
    expect(await stage.outcome()).toBe('ok');
    expect(stage.events('connection.closed')).toMatchObject([{ protocol: 'socks4' }]);
  });

  test('socks handshake: SOCKS4 is refused if the listener has users', async () => {
    const stage = await Stage.open({ users: { ann: 'a' } });
    expect(await stage.exchange(request4a('ann'))).toBe(reply4('5d'));
    expect(await stage.outcome()).toBe('auth-required');
    expect(stage.dials).toEqual([]);
  });

  test('socks handshake: every other SOCKS4 failure is 0x5B', async () => {
    const denied = await Stage.open({ denyTargets: ['private'] });
    expect(await denied.exchange(request4a('', 'localhost'))).toBe(reply4('5b'));
    const routing = await Stage.open();
    expect(await routing.exchange(request4a('me-session-abc-colour-red'))).toBe(reply4('5b'));
    expect(await routing.outcome()).toBe('bad-routing');
    const bind = await Stage.open();
    expect(await bind.exchange(hex('04 02 0050 c0000201 00'))).toBe(reply4('5b'));
    const refused = await Stage.open({ refusal: new NoriaError('forbidden', 'not allowed') });
    expect(await refused.exchange(request4a())).toBe(reply4('5b'));
  });

  test('socks handshake: a failed dial is 0x5B in SOCKS4', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(request4a());
    (await stage.dialed()).fail({ code: 'target-unreachable' });
    expect((await client.toEnd()).toString('hex')).toBe(reply4('5b'));
  });
});

describe('socks handshake: SOCKS5 refusals', () => {
  interface Refusal {
    readonly what: string;
    readonly users?: Record<string, string>;
    readonly sent: readonly Buffer[];
    readonly reply: string;
    readonly code: string;
    readonly detail: RegExp;
  }
  const users = { ann: 'a' };
  const REFUSALS: readonly Refusal[] = [
    {
      what: 'unknown methods',
      sent: [hex('05 02 01 80')],
      reply: NO_METHOD,
      code: 'bad-request',
      detail:
        /^the client offers methods 1, 128, but noria supports only 0 \(no login\) and 2 \(user name and password\)$/,
    },
    {
      what: 'a greeting without methods',
      sent: [hex('05 00')],
      reply: NO_METHOD,
      code: 'bad-request',
      detail: /no method/,
    },
    {
      what: 'missing credentials',
      users,
      sent: [GREETING_NONE],
      reply: NO_METHOD,
      code: 'auth-required',
      detail: /no credentials/,
    },
    {
      what: 'a wrong password',
      users,
      sent: [GREETING_PASSWORD, credentials('ann', 'b'), request()],
      reply: METHOD_PASSWORD + AUTH_FAILED,
      code: 'auth-required',
      detail: /^wrong credentials$/,
    },
    {
      what: 'an unknown user',
      users,
      sent: [GREETING_BOTH, credentials('bob', 'a')],
      reply: METHOD_PASSWORD + AUTH_FAILED,
      code: 'auth-required',
      detail: /^wrong credentials$/,
    },
    {
      what: 'invalid routing options',
      users,
      sent: [GREETING_PASSWORD, credentials('ann-colour-red', 'a'), request()],
      reply: METHOD_PASSWORD + AUTH_FAILED,
      code: 'bad-routing',
      detail: /unknown key "colour"/,
    },
    {
      what: 'another version of the credentials',
      sent: [GREETING_PASSWORD, hex('05 01 00')],
      reply: METHOD_PASSWORD + AUTH_FAILED,
      code: 'bad-request',
      detail: /login message has the unknown version 5/,
    },
    {
      what: 'BIND',
      sent: [GREETING_NONE, hex('05 02 00 01 c0000201 0050')],
      reply: METHOD_NONE + reply5('07'),
      code: 'not-implemented',
      detail: /command BIND/,
    },
    {
      what: 'UDP ASSOCIATE',
      sent: [GREETING_NONE, hex('05 03 00 01 00000000 0000')],
      reply: METHOD_NONE + reply5('07'),
      code: 'not-implemented',
      detail: /command UDP ASSOCIATE/,
    },
    {
      what: 'an unknown address type',
      sent: [GREETING_NONE, hex('05 01 00 09 c0000201 0050')],
      reply: METHOD_NONE + reply5('08'),
      code: 'not-implemented',
      detail: /address type 9/,
    },
    {
      what: 'a malformed target',
      sent: [GREETING_NONE, request('a b')],
      reply: METHOD_NONE + reply5('01'),
      code: 'bad-request',
      detail: /not a valid host and port/,
    },
    {
      what: 'another version of the request',
      sent: [GREETING_NONE, hex('04 01')],
      reply: METHOD_NONE + reply5('01'),
      code: 'bad-request',
      detail: /version 4/,
    },
  ];

  test.each(REFUSALS)(
    'socks handshake: refuses $what',
    async ({ users: some, sent, reply, code, detail }) => {
      const stage = await Stage.open(some === undefined ? {} : { users: some });
      expect(await stage.exchange(...sent)).toBe(reply);
      expect(await stage.outcome()).toBe(code);
      expect(stage.events('client.refused')).toMatchObject([{ listener: 'test', protocol: 'socks5', code }]);
      expect(stage.events('client.refused')[0]?.detail).toMatch(detail);
      expect(stage.dials).toEqual([]);
    },
  );

  const DENIED = ['127.0.0.1', 'localhost', '::ffff:127.0.0.1', '2130706433', '169.254.169.254'];
  test.each(DENIED)('socks handshake: refuses the target %s by the default rules', async (host) => {
    const stage = await Stage.open({ denyTargets: ['private', 'smtp'] });
    expect(await stage.exchange(GREETING_NONE, request(host))).toBe(METHOD_NONE + reply5('02'));
    expect(await stage.outcome()).toBe('forbidden');
    expect(stage.dials).toEqual([]);
  });

  test('socks handshake: refuses a target on port 25 by the default rules', async () => {
    const stage = await Stage.open({ denyTargets: ['private', 'smtp'] });
    const mail = Buffer.concat([hex('05 01 00 03'), counted('mail.example'), hex('0019')]);
    expect(await stage.exchange(GREETING_NONE, mail)).toBe(METHOD_NONE + reply5('02'));
    expect(stage.events('client.refused')[0]?.detail).toBe(
      'target mail.example:25 refused: the port of the target is in denyTargets',
    );
  });

  test('socks handshake: after 20 wrong passwords refuses only further wrong ones', async () => {
    const stage = await Stage.open({ users, denyTargets: ['private'] });
    const wrong = [GREETING_PASSWORD, credentials('ann', 'guess')] as const;
    for (let index = 0; index < 20; index += 1) await stage.exchange(...wrong);
    expect(await stage.exchange(...wrong)).toBe(METHOD_PASSWORD + AUTH_FAILED);
    expect(stage.events('client.refused').at(-1)?.code).toBe('too-many-requests');
    const right = Buffer.concat([GREETING_PASSWORD, credentials('ann', 'a'), request('localhost')]);
    expect(await stage.exchange(right)).toBe(METHOD_PASSWORD + AUTH_OK + reply5('02'));
  });

  const FAILURES: readonly [failure: Partial<DialFailure> & Pick<DialFailure, 'code'>, reply: string][] = [
    [{ code: 'pool-empty' }, '01'],
    [{ code: 'members-failed' }, '01'],
    [{ code: 'target-unreachable' }, '04'],
    [{ code: 'target-unreachable', targetRefused: true }, '05'],
    [{ code: 'deadline' }, '06'],
    [{ code: 'bad-routing' }, '02'],
    [{ code: 'shutting-down' }, '01'],
    [{ code: 'internal' }, '01'],
  ];
  test.each(FAILURES)(
    'socks handshake: the reply to a dial that fails with %j is 0x%s',
    async (failure, reply) => {
      const stage = await Stage.open();
      const client = await stage.connect();
      client.send(Buffer.concat([GREETING_NONE, request()]));
      (await stage.dialed()).fail(failure);
      expect((await client.toEnd()).toString('hex')).toBe(METHOD_NONE + reply5(reply));
      expect(await stage.outcome()).toBe(failure.code);
      expect(stage.events('client.refused')).toMatchObject([
        { code: failure.code, detail: 'the test decided so', dialFailed: true },
      ]);
    },
  );
});

describe('socks handshake: a client that the listener refuses', () => {
  const refusal = new NoriaError('forbidden', 'client address is not in allow');

  test.each([
    ['none', GREETING_NONE, METHOD_NONE],
    ['both', GREETING_BOTH, METHOD_NONE],
  ])(
    'socks handshake: a refused client gets the reply to its request (methods: %s)',
    async (_, greeting, method) => {
      const stage = await Stage.open({ refusal, users: { ann: 'a' } });
      expect(await stage.exchange(greeting, request())).toBe(method + reply5('02'));
      expect(await stage.outcome()).toBe('forbidden');
      expect(stage.dials).toEqual([]);
    },
  );

  test('socks handshake: the credentials of a refused client are not checked', async () => {
    const stage = await Stage.open({ refusal, users: { ann: 'a' } });
    const reply = await stage.exchange(GREETING_PASSWORD, credentials('ann-colour-red', 'wrong'), request());
    expect(reply).toBe(METHOD_PASSWORD + AUTH_OK + reply5('02'));
    expect(stage.events('client.refused')).toMatchObject([{ code: 'forbidden', detail: refusal.message }]);
  });
});

describe('socks handshake: timeouts', () => {
  test('socks handshake: a slow handshake is closed after the timeout', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(GREETING_NONE);
    await client.receive(2);
    client.send(hex('05 01 00'));
    stage.clock.advance(HANDSHAKE_TIMEOUT_MS + 1_000);
    expect(await stage.outcome()).toBe('request-timeout');
  });

  test('socks handshake: the timeout ends with a complete request', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_NONE, request()]));
    const dial = await stage.dialed();
    stage.clock.advance(HANDSHAKE_TIMEOUT_MS + 1_000);
    await dial.succeed();
    expect((await client.receive(12)).toString('hex')).toBe(METHOD_NONE + reply5('00'));
  });
});

describe('socks handshake: a client that leaves', () => {
  test('socks handshake: a client that leaves during the handshake ends its connection', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(hex('05 02 00'));
    client.socket.end();
    expect((await client.toEnd()).length).toBe(0);
    expect(await stage.outcome()).toBe('client-gone');
    expect(stage.events('client.refused')).toEqual([]);
  });

  test('socks handshake: a client that resets its connection during the handshake has gone', async () => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(GREETING_NONE);
    await client.receive(2);
    client.socket.resetAndDestroy();
    expect(await stage.outcome()).toBe('client-gone');
  });

  test.each([
    ['SOCKS5', Buffer.concat([GREETING_NONE, request()]), 12],
    ['SOCKS4', request4a(), 8],
  ])('socks handshake: a client that resets its tunnel was served (%s)', async (_, sent, bytes) => {
    const stage = await Stage.open();
    const client = await stage.connect();
    client.send(sent);
    await (await stage.dialed()).succeed();
    await client.receive(bytes);
    expect(stage.accepted[0]?.listenerCount('error'), 'as before the handshake').toBe(1);
    client.socket.resetAndDestroy();
    expect(await stage.outcome()).toBe('ok');
  });

  const LEAVING: readonly [how: string, leave: (socket: import('node:net').Socket) => void][] = [
    ['cleanly', (socket) => void socket.end()],
    ['by a reset', (socket) => void socket.resetAndDestroy()],
  ];
  test.each(LEAVING)(
    'socks handshake: a client that leaves %s during the dial cancels it',
    async (_, leave) => {
      const stage = await Stage.open();
      const client = await stage.connect();
      client.send(Buffer.concat([GREETING_NONE, request()]));
      const dial = await stage.dialed();
      leave(client.socket);
      await until('the dial to be cancelled', () => dial.cancelled);
      expect(await stage.outcome()).toBe('client-gone');
      expect(stage.events('client.refused')).toEqual([]);
    },
  );

  test('socks handshake: a reset after a refusal does not change the outcome', async () => {
    const stage = await Stage.open({ denyTargets: ['private'] });
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_NONE, request('localhost')]));
    await client.receive(12);
    client.socket.resetAndDestroy();
    expect(await stage.outcome()).toBe('forbidden');
  });

  test('socks handshake: a refused client that keeps sending can read its reply', async () => {
    const stage = await Stage.open({ denyTargets: ['private'] });
    const client = await stage.connect();
    client.send(Buffer.concat([GREETING_NONE, request('localhost'), Buffer.alloc(512 * 1024)]));
    expect((await client.toEnd()).toString('hex')).toBe(METHOD_NONE + reply5('02'));
  });
});
