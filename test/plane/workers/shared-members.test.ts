/** Two worker processes use one pool. What one worker learns, and what the operator does, applies to both. */
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { NO_HEDGE } from '../../support/noria.ts';
import { until } from '../../support/until.ts';
import { basic, getIp, openTunnel, startPair, untilLost, untilStatus, workersOf } from './worker-pair.ts';

const memberOf = (answer: string) => /^X-Noria-Member: (\S+)\r$/m.exec(answer)?.[1] ?? '';

/** Opens a tunnel. @returns the id of its member. */
async function memberOn(socket: Socket, target: string, user = 'me'): Promise<string> {
  const answer = await openTunnel(socket, target, basic(user));
  expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  return memberOf(answer);
}

test('workers: the admin API shows the tunnels of all workers, and tunnels of an evicted member continue', async () => {
  const { noria, target, through } = await startPair();
  const tunnels = [await through(0), await through(1)] as const;
  const members = [];
  for (const socket of tunnels) members.push(await memberOn(socket, target, 'me-session-one'));
  const [member = ''] = members;
  expect(members).toEqual([member, member]);
  const view = () => noria.control.members().find(({ id }) => id === member);
  await until('both tunnels are counted', () => view()?.uses === 2);
  expect(view()).toMatchObject({ openTunnels: 2, latencyMs: expect.any(Number) });
  await until('the session is in use', () => noria.control.sessions()[0]?.uses === 2);
  await untilStatus(noria, ({ pool }) => pool.openTunnels === 2 && pool.sessions === 1);

  expect(noria.control.evictMember(member)).toBe(true);
  expect(view()?.state).toBe('draining');
  for (const worker of [0, 1] as const) {
    await until('the worker knows', async () => {
      const socket = await through(worker);
      const next = await memberOn(socket, target, 'me-session-one');
      socket.destroy();
      return next !== member;
    });
  }
  for (const socket of tunnels) expect(await getIp(socket)).toContain('200 OK');
  for (const socket of tunnels) socket.destroy();
  await until('it has left', () => view() === undefined);
});

test('workers: a ban that a client reports applies in all workers', async () => {
  const { noria, target, through } = await startPair();
  const member = await memberOn(await through(0), target, 'me-session-one');
  const host = target.split(':')[0] ?? '';
  await until('the session is known', () => noria.control.sessions().length === 1);
  expect(noria.control.reportMember({ session: 'one', host, verdict: 'banned' })).toBe(true);
  for (const worker of [0, 1] as const) {
    const next = async () => memberOn(await through(worker), target);
    await until('the worker knows', async () => {
      for (let n = 0; n < 6; n += 1) if ((await next()) === member) return false;
      return true;
    });
  }
});

test('workers: a replacement worker knows the sessions of the other workers', async () => {
  const { noria, workers, target, connectToWorker, through } = await startPair();
  const member = await memberOn(await through(0), target, 'me-session-one');
  process.kill(workers[0], 'SIGKILL');
  await untilLost(noria);
  expect(noria.control.sessions(), 'the session outlives its worker').toMatchObject([{ id: 'one', member }]);
  await untilStatus(noria, ({ workers }) => workers.running === 2);
  const fresh = workersOf(process.pid).find((pid) => !workers.includes(pid)) ?? 0;
  const socket = await connectToWorker(fresh, [workers[1], fresh]);
  expect(await memberOn(socket, target, 'me-session-one')).toBe(member);
});

test('workers: maxUsesPerMember counts the uses of all workers', async () => {
  const more = `workers: 2\nrotation: { maxUsesPerMember: 1 }\ndial: { ${NO_HEDGE} }`;
  const { noria, target, through } = await startPair({ more });
  const used: string[] = [];
  for (const worker of [0, 1, 0, 1, 0, 1] as const) {
    const socket = await through(worker);
    used.push(await memberOn(socket, target));
    socket.destroy();
  }
  expect(new Set(used).size).toBe(used.length);
  await until('all have left', () => noria.control.members().every(({ id }) => !used.includes(id)));
  const left = noria.lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'member left');
  expect(left.map(({ reason, uses }) => [reason, uses])).toEqual(used.map(() => ['used-up', 1]));
});

test('workers: clients that wait in a worker let the primary draw, and get what the sources do', async () => {
  const { noria, target, through } = await startPair({
    more: `workers: 2\ndial: { waitForMember: 60s, ${NO_HEDGE} }`,
  });
  noria.control.pauseSource('pure');
  for (const { id } of noria.control.members()) noria.control.evictMember(id);
  for (const worker of [0, 1] as const) {
    const refused = await openTunnel(await through(worker), target);
    expect(refused).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: pool-empty\r\n/s);
    expect(refused).toContain('paused by the operator');
  }
  noria.control.resumeSource('pure');
  const answers = [await through(0), await through(1)].map((socket) => openTunnel(socket, target));
  for (const answer of await Promise.all(answers)) expect(answer).toMatch(/^HTTP\/1\.1 200 /);
});
