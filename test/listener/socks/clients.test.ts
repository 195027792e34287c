import { once } from 'node:events';
import { SocksClient, type SocksClientOptions } from 'socks';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Stage, type StageOptions } from './socks-stage.ts';

/** Connects with an independent client. */
function connectTo(stage: Stage, proxy: Partial<SocksClientOptions['proxy']>, host: string) {
  return SocksClient.createConnection({
    proxy: { host: '127.0.0.1', port: stage.port, type: 5, ...proxy },
    command: 'connect',
    destination: { host, port: 443 },
  });
}

describe('socks handshake: the socks package as a client', () => {
  const CALLS: readonly [
    what: string,
    options: StageOptions,
    proxy: object,
    host: string,
    routing: object,
  ][] = [
    ['SOCKS5 to a name', {}, { type: 5 }, 'example.com', {}],
    ['SOCKS5 to an IPv4 address', {}, { type: 5 }, '192.0.2.1', {}],
    ['SOCKS5 to an IPv6 address', {}, { type: 5 }, '2001:db8::1', {}],
    [
      'SOCKS5 with credentials and routing options',
      { users: { ann: 'a' } },
      { type: 5, userId: 'ann-session-x', password: 'a' },
      'example.com',
      { session: 'ann:x' },
    ],
    ['SOCKS4 to an address', {}, { type: 4 }, '192.0.2.1', {}],
    [
      'SOCKS4a to a name, with routing options',
      {},
      { type: 4, userId: 'me-session-x' },
      'example.com',
      { session: 'x' },
    ],
  ];

  test.each(CALLS)('socks-front: %s', async (_, options, proxy, host, routing) => {
    const stage = await Stage.open(options);
    const connecting = connectTo(stage, proxy, host);
    const dial = await stage.dialed();
    expect(dial.request).toMatchObject({ target: { host, port: 443 }, use: 'tunnel' });
    expect(dial.request.routing).toMatchObject(routing);
    await dial.succeed();
    const { socket } = await connecting;
    onTestFinished(() => void socket.destroy());
    const reply = once(socket, 'data');
    socket.resume();
    socket.write('word');
    expect(String((await reply)[0])).toBe('word');
  });

  test('socks handshake: wrong credentials fail the authentication', async () => {
    const proxy = { type: 5, userId: 'ann', password: 'b' } as const;
    const stage = await Stage.open({ users: { ann: 'a' } });
    await expect(connectTo(stage, proxy, 'example.com')).rejects.toThrow(/Authentication failed/);
  });

  test('socks handshake: a denied target fails the request', async () => {
    const stage = await Stage.open({ denyTargets: ['private'] });
    await expect(connectTo(stage, { type: 5 }, 'localhost')).rejects.toThrow(/NotAllowed/);
  });
});
