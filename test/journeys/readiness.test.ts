/**
 * Typical mistakes of a new user. Every interface says that noria cannot serve clients, why, and what to do. A noria
 * that recovers says that, too.
 */
import { expect, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

const FAST = 'dial: { waitForMember: 200ms, deadline: 3s }';

async function readyz(noria: Noria): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${noria.admin}/readyz`);
  return { status: answer.status, text: await answer.text() };
}

const readyMetric = async (noria: Noria) =>
  /^noria_ready (\d)$/m.exec(await (await fetch(`${noria.admin}/metrics`)).text())?.[1];

const readinessLines = (noria: Noria) =>
  noria.lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'readiness changed');

const unreachable = (baseUrl: string) => [
  `  - { name: city, product: short-classic, baseUrl: "${baseUrl}", instance: "202611210001", password: "pw" }`,
];

async function expectNotServing(noria: Noria, reason: RegExp, advice: RegExp): Promise<void> {
  await until('it is not ready', () => !noria.control.status().ready);
  const { state, problems } = noria.control.status();
  expect([state, problems[0]?.reason]).toEqual(['not-serving', expect.stringMatching(reason)]);
  const { status, text } = await readyz(noria);
  expect(status).toBe(503);
  expect(text).toMatch(reason);
  expect(text).toMatch(/^noria has been in this state for \d+ s; /m);
  expect(text).toMatch(advice);
  expect(await readyMetric(noria)).toBe('0');
  expect(readinessLines(noria).at(-1)).toMatchObject({ level: 50, to: 'not-serving', ready: false });
}

test('readiness: not serving, with the reason, when the service refuses the connection', async () => {
  const noria = await startNoria({
    sources: unreachable(`http://127.0.0.1:${await freePort()}`),
    more: FAST,
  });
  await expectNotServing(noria, /service/i, /^What to do: /m);
});

test('readiness: not serving, with the reason, when the name of the service does not resolve', async () => {
  const noria = await startNoria({ sources: unreachable('http://service.invalid'), more: FAST });
  await expectNotServing(noria, /service/i, /^What to do: /m);
});

test('readiness: not serving, with the reason, when the URL is not that of the service', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: unreachable(`${sandbox.targetUrl}/nothing`), more: FAST });
  await expectNotServing(noria, /does not have the operation that noria called/, /^What to do: /m);
});

test('readiness: not serving, with the reason, when the key is wrong', async () => {
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic' }] });
  const { id, baseUrl } = sandbox.instance('short-classic');
  const line = `  - { name: city, product: short-classic, baseUrl: "${baseUrl}", instance: "${id}", password: "wrong" }`;
  const noria = await startNoria({ sources: [line], more: FAST });
  await expectNotServing(noria, /12001/, /password/);
});

test('readiness: not serving, with the reason, when noria may not use the address of any member', async () => {
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic' }] });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic')],
    allowPrivate: false,
    more: FAST,
  });
  await expectNotServing(
    noria,
    /noria dropped all proxies of the answer, by reason: private/,
    /allowPrivateAddresses/,
  );
});

test('readiness: a noria that works says so, and one log line reports each change', async () => {
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic', members: 4 }] });
  const noria = await startNoria({ sources: [sourceLine(sandbox, 'city', 'short-classic', 'size: 2')] });
  await untilReady(noria, 2);
  expect(await readyz(noria)).toEqual({ status: 200, text: 'serving: 2 members are usable\n' });
  expect(await readyMetric(noria)).toBe('1');
  noria.control.pauseSource('city');
  // noria keeps a snapshot of its state for a while if its creation took long, as on a busy machine.
  await until('a problem', async () =>
    /^degraded: 2 members are usable; city: paused by the operator/.test((await readyz(noria)).text),
  );
  noria.control.resumeSource('city');
  await until('no problem', () => noria.control.status().state === 'serving');
  expect(readinessLines(noria).map(({ from, to }) => `${from} ${to}`)).toEqual([
    'starting serving',
    'serving degraded',
    'degraded serving',
  ]);
});
