/** The crew with a dial that ends when the test wants it to. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { ConnectionServer } from '../../src/sandbox/connection-server.ts';
import { LOCATIONS } from '../../src/sandbox/locations.ts';
import { RunningMember } from '../../src/sandbox/member.ts';
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

/** A member that is served by a crew whose dial is the test's. */
async function openMember(protocol: 'http' | 'socks5', dial: () => Promise<Socket>): Promise<RunningMember> {
  const [place] = LOCATIONS;
  if (place === undefined) throw new Error('there is no place');
  const crew = new ConnectionServer({ dial }, systemClock);
  const member = new RunningMember({
    id: 'one',
    instance: 'any',
    exit: { listenHost: '127.0.0.1', address: '127.0.0.1' },
    listenHost: '127.0.0.1',
    traits: {
      protocol,
      label: protocol,
      location: place,
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
    graceMs: 0,
    behaviour: { how: 'good' },
    clock: systemClock,
    serve: crew.serve.bind(crew),
    onClosed: () => {},
  });
  await member.open();
  onTestFinished(() => member.close());
  return member;
}

/** A client that has sent its request. */
function openClient({ host, port }: RunningMember, request: string | Uint8Array): Socket {
  const client = connect({ host, port });
  client.on('error', () => {}); // ignored: how it ends is the test's doing
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
  'crew: a %s client that leaves while its target is dialed leaves no connection behind',
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

test('crew: a member that ends at any moment of a CONNECT leaves no connection behind', async () => {
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
