/** Members that accept every target and relay nothing: what clients notice of them, and what noria does about them. */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

const MEMBERS = 6;

/** A noria with six members, the first of which are mute from now on. */
async function openWithMutes(muteCount: number) {
  const sandbox = await openTestSandbox({
    members: MEMBERS,
    lifetimeMs: 600_000,
    instances: [{ product: 'short-pure' }],
  });
  const noria = await startNoria({
    sources: [
      sourceLine(
        sandbox,
        'pure',
        'short-pure',
        `interval: 200ms, size: ${MEMBERS}, params: { count: ${MEMBERS} }`,
      ),
    ],
    pool: 'safetyMargin: 200ms, minRemaining: 0s, fill: size',
    more: 'health: { quarantine: 60s }\ndial: { warm: off, hedgeAfter: off }',
  });
  await untilReady(noria, MEMBERS);
  const mutes = noria.control.members().slice(0, muteCount);
  for (const { host, port } of mutes) {
    const behind = sandbox.members().find((member) => member.host === host && member.port === port);
    await sandbox.setBehaviour(behind?.id ?? '', { how: 'silent-after' });
  }
  const { port } = new URL(sandbox.targetUrl);
  const faults: string[] = [];
  noria.bus.on('dial.attempted', ({ outcome, member }) => {
    if (outcome === 'member-mute') faults.push(member);
  });
  return {
    noria,
    mutes: mutes.map(({ id }) => id).sort(),
    targets: [`127.0.0.1:${port}`, `localhost:${port}`],
    faults,
  };
}

/** A plain GET through noria. @returns the status and the time in ms. */
async function get({ proxy }: Noria, url: string): Promise<{ status: number | undefined; ms: number }> {
  const startedAt = performance.now();
  const [host, port] = proxy.split(':');
  const asked = request({ host, port, path: url, headers: { Host: new URL(url).host } });
  asked.end();
  const [response]: IncomingMessage[] = await once(asked, 'response');
  if (response === undefined) throw new Error('no response');
  await text(response);
  return { status: response.statusCode, ms: performance.now() - startedAt };
}

test('mute members: of 40 GETs hardly any waits, and both members are quarantined', async () => {
  const { noria, mutes, targets, faults } = await openWithMutes(2);
  const slow: number[] = [];
  for (let time = 0; time < 40; time += 1) {
    const { status, ms } = await get(noria, `http://${targets[time % 2]}/ip`);
    expect(status).toBe(200);
    if (ms > 5_000) slow.push(ms);
  }
  expect(slow.length, `slow GETs: ${slow}`).toBeLessThanOrEqual(2);
  expect([...new Set(faults)].sort()).toEqual(mutes);
  const quarantined = () => {
    const states = noria.control.members().filter(({ id, state }) => mutes.includes(id) && state !== 'ready');
    const left = mutes.filter((id) => !noria.control.members().some((member) => member.id === id));
    return states.length + left.length;
  };
  await until('both are out of use', () => quarantined() === 2);
});

test('mute members: a tunnel through one does not count as served, and names the member', async () => {
  const { noria, mutes, targets, faults } = await openWithMutes(1);
  const outcomes: string[] = [];
  noria.bus.on('connection.closed', ({ outcome }) => outcomes.push(outcome));
  const [host, port] = noria.proxy.split(':');
  const target = targets[0] ?? '';
  let wasAnswered = false;
  for (let time = 0; time < MEMBERS * 2; time += 1) {
    const socket = connect(Number(port), host);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
    await once(socket, 'data');
    socket.write(`GET /ip HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`);
    socket.setTimeout(3_500); // a client that gives up
    const answered = await Promise.race([
      once(socket, 'data').then(() => true),
      once(socket, 'timeout').then(() => false),
    ]);
    socket.destroy();
    await until('the tunnel has ended', () => outcomes.length === time + 1);
    // Before any other member has answered, the target itself may be silent.
    expect(outcomes.at(-1), `tunnel ${time}`).toBe(answered || !wasAnswered ? 'ok' : 'member-mute');
    wasAnswered ||= answered;
    if (faults.length > 0) break;
  }
  expect(faults).toEqual(mutes);
});
