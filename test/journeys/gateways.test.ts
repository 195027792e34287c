/** A gateway whose user name chooses the exit: noria makes the names, and replaces one at once. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { exitThrough, getThrough } from '../support/exit-through.ts';
import { NO_HEDGE, type Noria, openTestSandbox, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

function gatewaySource({ gateway }: Sandbox, more = '', password = gateway.passwordOf('oxylabs')): string {
  const auth = `{ username: "customer-me-sessid-{session}-sesstime-10", password: "${password}" }`;
  return `  - { name: gw, product: gateway, address: "127.0.0.1:${gateway.port}", upstream: { protocol: http, auth: ${auth} }, size: 3${more} }`;
}

/** Holds `size` members from the start, without a client. */
const FULL = 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s, fill: size';

const statusOf = (noria: Noria) => noria.control.status().sources[0];

test('gateways: carry requests through made names, without a call and without a pace', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: [gatewaySource(sandbox)], pool: FULL });
  await untilReady(noria, 3);
  const exits = await Promise.all(
    Array.from({ length: 6 }, () => getThrough(noria.proxy, `${sandbox.targetUrl}/ip`)),
  );
  for (const exit of exits) expect(exit).toMatch(/^200 127\./);
  expect(new Set(exits).size).toBe(3);
  expect(sandbox.gateway.sessions.size).toBe(3);
  expect(statusOf(noria)).toMatchObject({ product: 'gateway', state: 'ready' });
  for (const line of noria.lines) expect(line).not.toContain(sandbox.gateway.passwordOf('oxylabs'));
});

test('gateways: a session keeps its exit, and an evicted one is replaced within one request', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({
    sources: [gatewaySource(sandbox, ', size: 1').replace(', size: 3', '')],
    more: `dial: { ${NO_HEDGE} }`,
  });
  await untilReady(noria, 1);
  const ask = () => getThrough(noria.proxy, `${sandbox.targetUrl}/ip`, 'me-session-a:x');
  const first = await ask();
  expect(await ask()).toBe(first);
  const [member] = noria.control.members();
  noria.control.evictMember(member?.id ?? '');
  const next = await ask();
  expect(next).toMatch(/^200 127\./);
  expect(next).not.toBe(first);
  expect(await ask()).toBe(next);
});

test('gateways: refused names halt the source with advice after two, and resume when the operator says so', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: [gatewaySource(sandbox)], pool: FULL });
  await untilReady(noria, 3);
  sandbox.gateway.refusesAll = true;
  expect(await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`)).toMatch(/^50[23] /);
  await until('the source is halted', () => statusOf(noria)?.state === 'halted');
  expect(statusOf(noria)?.reason).toContain('the gateway refused the credentials of 2 of');
  expect(statusOf(noria)?.advice).toContain('Check the user name and the password in upstream.auth');
  sandbox.gateway.refusesAll = false;
  noria.control.resumeSource('gw');
  await until('clients are served', async () =>
    (await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`)).startsWith('200'),
  );
});

test('gateways: a name that the lifetime ends is replaced by another one', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({
    sources: [gatewaySource(sandbox, ', lifetime: 1s')],
    pool: FULL,
  });
  await untilReady(noria, 3);
  const before = noria.control.members().map(({ id }) => id);
  await until('other members are there', () => {
    const now = noria.control.members();
    return now.length === 3 && now.every(({ id }) => !before.includes(id));
  });
});

const PRESETS = readdirSync('docs/presets/gateways').map((file) => file.replace(/\.yaml$/, ''));

/** The source of a preset, whose account is one of the sandbox. */
function presetSource({ gateway }: Sandbox, preset: string): string {
  return readFileSync(`docs/presets/gateways/${preset}.yaml`, 'utf8')
    .replace(/^(?:#.*\n)*sources:\n/, '')
    .replace(/address: .*/, `address: "127.0.0.1:${gateway.port}"`)
    .replace(/password: "[^"]*"/, `password: "${gateway.passwordOf(preset)}"`)
    .replace(/\$\{\w+\}/g, 'me');
}

test('gateways: each preset writes user names as its vendor reads them', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: PRESETS.map((preset) => presetSource(sandbox, preset)) });
  expect(PRESETS).toEqual([...sandbox.gateway.vendors].sort());
  const exits = await Promise.all(
    PRESETS.map((preset) => exitThrough(noria.proxy, preset, `${sandbox.targetUrl}/ip`)),
  );
  for (const [at, exit] of exits.entries()) expect(exit, PRESETS[at]).toMatch(/^200 127\.\d+\.\d+\.\d+$/);
  expect(new Set(exits).size, 'each through its own name').toBe(PRESETS.length);
});

test('gateways: a report bans one made name and not the gateway', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({
    sources: [gatewaySource(sandbox)],
    pool: FULL,
    more: `dial: { ${NO_HEDGE} }`,
  });
  await untilReady(noria, 3);
  const url = `${sandbox.targetUrl}/ip`;
  const first = await getThrough(noria.proxy, url, 'me-session-a:x');
  const report = JSON.stringify({ session: 'a', host: new URL(url).hostname, verdict: 'banned', for: '10m' });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${noria.admin}/api/reports`, { method: 'POST', body: report, headers });
  expect(answer.status).toBe(204);
  const next = await getThrough(noria.proxy, url, 'me-session-a:x');
  expect(next).toMatch(/^200 127\./);
  expect(next).not.toBe(first);
});

test('gateways: spend is the price of a GB times the traffic, not of the names', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: [gatewaySource(sandbox, ', price: 1000')] });
  await untilReady(noria, 2);
  expect(await getThrough(noria.proxy, `${sandbox.targetUrl}/ip`)).toMatch(/^200 /);
  await until('the request is counted', async () => {
    const rows = (await noria.control.usage('source', undefined)) ?? [];
    const row = rows.find(({ name }) => name === 'gw');
    return (
      row !== undefined && row.spend > 0 && Math.abs(row.spend - (row.bytesUp + row.bytesDown) * 1e-6) < 1e-9
    );
  });
});
