/**
 * Schemes that authenticate a connection and not a request (NTLM, Negotiate). One client's authentication must never serve
 * another client, and its own requests must reach the target on one connection, or it could not authenticate at all.
 */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import type { MemberConnection } from '../../../src/dialer/contract.ts';
import { PinnedConnection } from '../../../src/listener/http/pinned-connection.ts';
import { curl } from '../../support/curl.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { hasCommand } from '../../support/tools.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { rawOrigin } from '../origin.ts';

const reply = (status: string, fields: string, body: string) =>
  `HTTP/1.1 ${status}\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;

/**
 * A target that learns the user of a connection from the third NTLM message, as a real server does, and asks for no
 * further message.
 */
function ntlmTarget() {
  return rawOrigin((socket: Socket, index) => {
    let user = 'nobody';
    let challenged = false;
    let unread = '';
    socket.on('data', (chunk: Buffer) => {
      unread += chunk.toString('latin1');
      for (let end = unread.indexOf('\r\n\r\n'); end >= 0; end = unread.indexOf('\r\n\r\n')) {
        const message = /^Authorization: NTLM (\S+)/m.exec(unread.slice(0, end))?.[1];
        unread = unread.slice(end + 4);
        if (message?.startsWith('type3-') === true && challenged) user = message.slice('type3-'.length);
        if (message === 'type1') {
          challenged = true;
          socket.write(reply('401 No', 'WWW-Authenticate: NTLM type2\r\n', ''));
        } else if (user === 'nobody' && message === undefined) {
          socket.write(reply('401 No', 'WWW-Authenticate: Negotiate, NTLM\r\n', ''));
        } else {
          socket.write(reply('200 OK', '', `<${user} on ${index}>`));
        }
      }
    });
  });
}

const get = (port: number, fields = '') =>
  `GET http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;
const NTLM = 'Authorization: NTLM ';

/** Sends a request and returns the whole answer to it. */
async function ask(client: RawClient, request: string): Promise<string> {
  const before = client.received.length;
  client.send(request);
  const isWhole = (text: string) => {
    const answer = text.slice(before);
    const head = answer.indexOf('\r\n\r\n');
    const length = /Content-Length: (\d+)/.exec(answer)?.[1];
    return head >= 0 && answer.length >= head + 4 + Number(length);
  };
  return (await client.until('an answer', isWhole)).slice(before);
}

async function authenticate(client: RawClient, port: number, name: string): Promise<string> {
  await ask(client, get(port));
  await ask(client, get(port, `${NTLM}type1\r\n`));
  return ask(client, get(port, `${NTLM}type3-${name}\r\n`));
}

test('connection authentication: NTLM works without a session, on one member for as long as the client connection lives', async () => {
  const target = await ntlmTarget();
  const dialer = directDialer({ reuse: true });
  const { port, listener } = await listen(dialer);
  const client = await RawClient.open(port);
  expect(await ask(client, get(target.port))).toContain('Proxy-Support: Session-Based-Authentication\r\n');
  expect(await authenticate(client, target.port, 'ann')).toContain('<ann on 0>');
  const posted = get(target.port, 'Content-Length: 0\r\n').replace('GET', 'POST');
  for (const request of [get(target.port), posted, get(target.port)]) {
    const answer = await ask(client, request);
    expect(answer).toContain('<ann on 0>');
    expect(answer).toContain('X-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n');
  }
  expect([target.sockets.length, dialer.requests.length, dialer.ended.length]).toEqual([1, 1, 0]);
  client.end();
  await until('the close', () => listener.connectionCount === 0);
  expect(dialer.ended).toMatchObject([{ cut: false, member: 'm1' }]);
  expect(dialer.ended[0]?.keep).not.toBe(true);
  expect(dialer.sockets[0]?.destroyed).toBe(true);
});

test("connection authentication: no request of another client is served as this one's", async () => {
  const target = await ntlmTarget();
  const { port } = await listen(directDialer({ reuse: true }));
  const ann = await RawClient.open(port);
  const bob = await RawClient.open(port);
  await authenticate(ann, target.port, 'ann');
  for (let nth = 0; nth < 20; nth += 1) {
    expect(await ask(bob, get(target.port))).toMatch(/^HTTP\/1\.1 401 /);
    expect(await ask(ann, get(target.port))).toContain('<ann on 0>');
  }
});

test.each([
  ['NTLM', 'Authorization: NTLM x\r\n', '', true],
  ['Negotiate', 'authorization: Negotiate x\r\n', '', true],
  ['a scheme that noria does not know', 'Authorization: Odd x\r\n', '', true],
  ['a 401 that offers NTLM', '', 'WWW-Authenticate: NTLM\r\n', true],
  ['a 401 that offers Negotiate among others', '', 'WWW-Authenticate: Basic realm="a", Negotiate\r\n', true],
  ['Basic', 'Authorization: basic x\r\n', '', false],
  ['Digest', 'Authorization: Digest username="x"\r\n', '', false],
  ['Bearer', 'Authorization: Bearer x\r\n', '', false],
  ['a 401 that offers Basic', '', 'WWW-Authenticate: Basic realm="ntlm"\r\n', false],
])(
  'connection authentication: whether the connection is pinned: %s',
  async (_what, sent, answered, pinned) => {
    const target = await rawOrigin((socket) =>
      socket.on('data', () => socket.write(reply(answered === '' ? '200 OK' : '401 No', answered, ''))),
    );
    const dialer = directDialer({ reuse: true });
    const { port } = await listen(dialer);
    const client = await RawClient.open(port);
    await ask(client, get(target.port, sent));
    await ask(client, get(target.port));
    expect(dialer.requests.length).toBe(pinned ? 1 : 2);
    client.socket.destroy();
    await until('the leases ended', () => dialer.ended.length === dialer.requests.length);
    expect(dialer.ended.filter(({ keep }) => keep === true).length).toBe(pinned ? 0 : 2);
  },
);

test('connection authentication: another target, user or session does not use the pinned connection', async () => {
  const [target, other] = [await ntlmTarget(), await ntlmTarget()];
  const users = ['ann', 'bob'].map((username) => ({ username, password: new Secret('pw') }));
  const { port } = await listen(directDialer(), {}, { users });
  const as = (name: string) =>
    `Proxy-Authorization: Basic ${Buffer.from(`${name}:pw`).toString('base64')}\r\n`;
  const client = await RawClient.open(port);
  await ask(client, get(target.port, `${NTLM}type1\r\n${as('ann')}`));
  await ask(client, get(target.port, `${NTLM}type3-ann\r\n${as('ann')}`));
  expect(await ask(client, get(target.port, as('bob')))).toMatch(/^HTTP\/1\.1 401 /);
  await ask(client, get(target.port, `${NTLM}type1\r\n${as('ann')}`));
  expect(await ask(client, get(target.port, `${NTLM}type3-ann\r\n${as('ann')}`))).toContain('<ann on');
  expect(await ask(client, get(target.port, as('ann-session-x')))).toMatch(/^HTTP\/1\.1 401 /);
  expect(await ask(client, get(other.port, as('ann')))).toMatch(/^HTTP\/1\.1 401 /);
});

test('connection authentication: a pinned connection that the target closes is replaced, without blame', async () => {
  const target = await ntlmTarget();
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  await authenticate(client, target.port, 'ann');
  target.sockets[0]?.destroy();
  await until('the lease ended', () => dialer.ended.length === 1);
  expect(await authenticate(client, target.port, 'ann')).toContain('<ann on 1>');
  expect(dialer.ended).toMatchObject([{ cut: false }]);
});

test.each<[string, (socket: Socket | undefined) => unknown]>([
  ['sends bytes that nobody asked for', (socket) => socket?.write('HTTP/1.1 200 OK\r\n')],
  ['ends its side', (socket) => socket?.end()],
  ['resets it', (socket) => socket?.resetAndDestroy()],
])(
  'connection authentication: a pinned connection on which the target %s is closed',
  async (_what, spoil) => {
    const target = await ntlmTarget();
    const dialer = directDialer();
    const { port } = await listen(dialer);
    const client = await RawClient.open(port);
    await authenticate(client, target.port, 'ann');
    spoil(target.sockets[0]);
    await until('the lease ended', () => dialer.ended.length === 1);
    expect([dialer.ended, dialer.answered]).toEqual([[{ cut: false, member: 'm1' }], [true]]);
    expect(dialer.sockets[0]?.destroyed).toBe(true);
    expect(await ask(client, get(target.port))).toMatch(/^HTTP\/1\.1 401 /);
  },
);

test('connection authentication: a pinned connection serves any number of requests, and ends its lease once', () => {
  const ends: unknown[] = [];
  const clock = ManualClock.dayOld();
  const pin = new PinnedConnection(clock);
  const purpose = { target: 'a.example:80', owner: 'me', routing: { client: 'local' } };
  const first: MemberConnection = {
    ...{
      socket: new Socket(),
      early: Buffer.from('x'),
      forwardMode: 'absolute',
      proxyAuthorization: 'Basic x',
    },
    ...{ reused: false, attempts: 3, lease: { member: 'm1', source: 'city', remainingMs: 60_000 } },
    isMemberError: ({ status }) => status === 502,
    end: (outcome) => void ends.push(outcome),
  };
  let kept = first;
  for (let nth = 0; nth < 20_000; nth += 1) {
    pin.keep(kept, purpose);
    const taken = pin.take({ ...purpose });
    if (taken === undefined) throw new Error('it was not kept');
    kept = taken;
    expect(pin.take(purpose)).toBeUndefined();
  }
  clock.advance(20_000);
  const answer = { fields: [], isRead: true };
  expect([
    kept.isMemberError({ ...answer, status: 502 }),
    kept.isMemberError({ ...answer, status: 200 }),
  ]).toEqual([true, false]);
  expect(kept).toMatchObject({
    ...{
      socket: first.socket,
      forwardMode: 'absolute',
      proxyAuthorization: 'Basic x',
      reused: true,
      attempts: 1,
    },
    lease: { member: 'm1', source: 'city', remainingMs: 40_000 },
  });
  expect([kept.early.length, kept.socket.isPaused(), kept.socket.listenerCount('data')]).toEqual([
    0,
    true,
    0,
  ]);
  pin.keep(kept, purpose);
  expect(pin.take({ ...purpose, owner: 'you' })).toBeUndefined();
  pin.keep({ ...kept, socket: new Socket() }, purpose);
  expect(kept.socket.destroyed).toBe(true);
  pin.close();
  pin.close();
  expect(ends).toEqual([
    { cut: false, answered: true },
    { cut: false, answered: true },
  ]);
});

test('connection authentication: the dialer learns who may share a connection', async () => {
  const target = await rawOrigin((socket) => socket.on('data', () => socket.write(reply('200 OK', '', ''))));
  const users = ['ann', 'bob'].map((username) => ({ username, password: new Secret('pw') }));
  const dialer = directDialer();
  const { port } = await listen(dialer, {}, { users });
  const client = await RawClient.open(port);
  for (const name of ['ann', 'bob', 'ann-session-x', 'bob-session-x', 'ann']) {
    const credentials = Buffer.from(`${name}:pw`).toString('base64');
    await ask(client, get(target.port, `Proxy-Authorization: Basic ${credentials}\r\n`));
  }
  const owners = dialer.requests.map(({ owner }) => owner);
  expect(new Set(owners).size).toBe(4);
  expect(owners[4]).toBe(owners[0]);
});

/** A challenge that real clients understand. */
const TYPE_2 = 'TlRMTVNTUAACAAAAAAAAACgAAAABggAAU3J2Tm9uY2UAAAAAAAAAAA==';

test.skipIf(!hasCommand('curl'))(
  'connection authentication: curl authenticates by NTLM, each request through its own member',
  async () => {
    const target = await rawOrigin((socket) => {
      let sent = 0;
      socket.on('data', (chunk: Buffer) => {
        const message = /^Authorization: NTLM (\S+)/m.exec(chunk.toString('latin1'))?.[1] ?? '';
        const type = Buffer.from(message, 'base64')[8];
        sent += 1;
        if (type === 3 && sent > 1) socket.write(reply('200 OK', '', 'welcome'));
        else if (type === 1) socket.write(reply('401 No', `WWW-Authenticate: NTLM ${TYPE_2}\r\n`, ''));
        else socket.write(reply('401 No', 'WWW-Authenticate: NTLM\r\n', ''));
      });
    });
    const dialer = directDialer({ reuse: true });
    const { port } = await listen(dialer);
    const url = `http://127.0.0.1:${target.port}/`;
    for (let nth = 1; nth <= 2; nth += 1) {
      const { out } = await curl(
        '-x',
        `http://127.0.0.1:${port}`,
        '--noproxy',
        '',
        '--ntlm',
        '-u',
        'ann:pw',
        url,
      );
      expect(out).toBe('welcome');
    }
    expect(dialer.requests.length).toBe(2);
  },
);

test('connection authentication: the time that the member has left passes while its connection is pinned', async () => {
  const target = await ntlmTarget();
  const clock = ManualClock.dayOld();
  const lease = { member: 'm1', source: 'city', remainingMs: 60_000 };
  const { port } = await listen(directDialer({ overrides: { lease } }), { clock });
  const client = await RawClient.open(port);
  const left: unknown[] = [];
  for (let nth = 0; nth < 3; nth += 1) {
    left.push(/X-Noria-Expires-In: (\d+)/.exec(await ask(client, get(target.port)))?.[1]);
    clock.advance(10_000);
  }
  expect([left, target.sockets.length]).toEqual([['60', '50', '40'], 1]);
});
