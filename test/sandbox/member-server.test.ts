/** The connection server with a dial that ends when the test says so. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { MemberServer } from '../../src/sandbox/member-server.ts';
import { RunningMember } from '../../src/sandbox/members.ts';
import { LOCATIONS } from '../../src/sandbox/operations.ts';
import { until } from '../support/until.ts';

async function connectedSocket(): Promise<Socket> {
  const server = createServer((socket) => socket.resume());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no port');
  const socket = connect({ host: '127.0.0.1', port: address.port });
  onTestFinished(() => {
    socket.destroy();
    server.close();
  });
  await once(socket, 'connect');
  return socket;
}

/** Opens a member whose connection server dials as the test says. */
async function openMember(protocol: 'http' | 'socks5', dial: () => Promise<Socket>): Promise<RunningMember> {
  const [location] = LOCATIONS;
  if (location === undefined) throw new Error('there is no location');
  const connections = new MemberServer({ dial }, systemClock);
  const member = new RunningMember(
    { clock: systemClock, serve: connections.serve.bind(connections) },
    { id: 'any', product: 'short-classic', password: '' },
    {
      id: 'one',
      exit: { listenHost: '127.0.0.1', address: '127.0.0.1' },
      traits: {
        protocol,
        label: protocol,
        location,
        reverse: false,
        onlineMs: 0,
        level: 1,
        checkedMinutes: 1,
        responseSeconds: 1,
        aliveHours: 1,
        serverId: 's1',
        lastScore: 1,
        yesterdayScore: 1,
      },
      lifeMs: 60_000,
      behaviour: { how: 'good' },
    },
    () => {},
  );
  await member.open();
  onTestFinished(() => member.close());
  return member;
}

/** Opens a client that sends its request. */
function openClient({ host, port }: RunningMember, request: string | Uint8Array): Socket {
  const client = connect({ host, port });
  client.on('error', () => {}); // ignored: the test ends the connection
  onTestFinished(() => void client.destroy());
  client.write(request);
  return client;
}

const CONNECT = 'CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: a\r\n\r\n';

test.each([
  ['http', CONNECT],
  ['http', 'GET http://127.0.0.1:80/ HTTP/1.1\r\nHost: a\r\n\r\n'],
  ['socks5', Buffer.from([5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80])],
] as const)(
  'connection server: closes the target when a %s client leaves during the dial',
  async (protocol, request) => {
    const dialed = Promise.withResolvers<Socket>();
    let isDialing = false;
    const member = await openMember(protocol, () => {
      isDialing = true;
      return dialed.promise;
    });
    const client = openClient(member, request);
    await until('its target is dialed', () => isDialing);
    client.resetAndDestroy();
    await until('the member knows that it left', () => member.connections === 0);
    const target = await connectedSocket();
    dialed.resolve(target);
    await until('its target is let go', () => target.destroyed);
  },
);

test('connection server: leaves no connection open when a member closes at any moment of a CONNECT', async () => {
  for (let turns = 0; turns < 16; turns += 1) {
    const dialed = Promise.withResolvers<Socket>();
    let isDialing = false;
    const member = await openMember('http', () => {
      isDialing = true;
      return dialed.promise;
    });
    openClient(member, CONNECT);
    await until('its target is dialed', () => isDialing);
    const target = await connectedSocket();
    dialed.resolve(target);
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
    await member.close();
    await until(`its target is let go, ${turns} turns later`, () => target.destroyed);
  }
});
