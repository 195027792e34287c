/**
 * Every preset of docs/presets draws from the sandbox in its vendor's layout, at its vendor's pace, and carries a client's request.
 * A link's answers lead to the states that docs/links.md names, and its keys appear nowhere.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { exitThrough } from '../support/exit-through.ts';
import { type Noria, openTestSandbox, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

const PRESETS = readdirSync('docs/presets').flatMap((file) =>
  file.endsWith('.yaml') ? [file.slice(0, -5)] : [],
);

/** The source of a preset as YAML: its link points at the sandbox, and its variables have the sandbox's values. */
function presetSource(
  sandbox: Sandbox,
  preset: string,
  changes: Readonly<Record<string, string>> = {},
): string {
  const { url, authorization = '' } = sandbox.link(preset);
  const keys = new URL(url).searchParams;
  const text = readFileSync(`docs/presets/${preset}.yaml`, 'utf8')
    .replace(/^(?:#.*\n)*sources:\n/, '')
    .replace(/^( +url: ")[^?"]+/m, `$1${sandbox.url}/links/${preset}`)
    .replace(/(\w+)=\$\{\w+\}/g, (_, name: string) => `${name}=${keys.get(name)}`)
    .replace(/\$\{DATAEYES_TOKEN\}/, authorization.replace('Basic ', ''));
  const changed = Object.entries({ size: '2', ...changes });
  return changed.reduce(
    (yaml, [key, value]) => `${yaml.replace(new RegExp(`^    ${key}: .*\n`, 'm'), '')}    ${key}: ${value}\n`,
    text,
  );
}

function sourceStatus(noria: Noria, name: string) {
  return noria.control.status().sources.find((source) => source.name === name);
}

test('links: each preset carries a request, at the pace of its vendor', async () => {
  const sandbox = await openTestSandbox();
  const noria = await startNoria({ sources: PRESETS.map((preset) => presetSource(sandbox, preset)) });
  expect(PRESETS.length).toBeGreaterThanOrEqual(6);
  const exits = await Promise.all(
    PRESETS.map(async (preset) => [
      preset,
      await exitThrough(noria.proxy, preset, `${sandbox.targetUrl}/ip`),
    ]),
  );
  for (const [preset, exit] of exits) expect(exit, preset).toMatch(/^200 127\.\d+\.\d+\.\d+$/);
  expect(new Set(exits.map(([, exit]) => exit)).size, 'each by a member of its own source').toBe(
    PRESETS.length,
  );
  expect(sandbox.strangers()).toEqual([]);
  for (const { name, calls, paceBreaks } of sandbox.links) {
    expect({ name, calls: calls > 0, paceBreaks }).toEqual({
      name,
      calls: PRESETS.includes(name),
      paceBreaks: 0,
    });
  }
});

test('links: a link that denies the call halts its source, and a refill tries again', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0 });
  sandbox.setLinkCondition('qg', 'denied');
  const noria = await startNoria({ sources: [presetSource(sandbox, 'qg', { interval: '100ms' })] });
  await until('the source halts', () => sourceStatus(noria, 'qg')?.state === 'halted');
  expect(sourceStatus(noria, 'qg')).toMatchObject({
    code: 'denied',
    reason: 'The vendor denies the call.',
    message: 'code INVALID_KEY: denied',
  });
  sandbox.setLinkCondition('qg', 'ok');
  noria.control.refillSource('qg');
  await untilReady(noria, 2);
});

test('links: an empty link is called at the pace until it has proxies', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0 });
  sandbox.setLinkCondition('qg', 'empty');
  const noria = await startNoria({ sources: [presetSource(sandbox, 'qg', { interval: '100ms' })] });
  const answer = exitThrough(noria.proxy, 'qg', `${sandbox.targetUrl}/ip`);
  await until('the link was empty twice', () => sandbox.link('qg').calls >= 2);
  expect(sourceStatus(noria, 'qg')?.code).toBe('empty');
  sandbox.setLinkCondition('qg', 'ok');
  expect(await answer).toMatch(/^200 127\./);
});

test('links: a call that comes too early lengthens the interval', async () => {
  const sandbox = await openTestSandbox({ paceMs: 2_000 });
  const noria = await startNoria({
    sources: [presetSource(sandbox, 'qg', { interval: '100ms', params: '{ count: 1 }' })],
    pool: 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s',
  });
  await untilReady(noria, 2);
  const { calls, paceBreaks } = sandbox.link('qg');
  expect(paceBreaks).toBeGreaterThan(0);
  expect(calls - paceBreaks).toBe(2);
  expect(noria.lines.join('\n')).toContain('The link is called too often.');
});

test('links: the daily budget ends drawing', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0 });
  const changes = { interval: '100ms', size: '10', dailyBudget: '3', params: '{ count: 2 }' };
  const noria = await startNoria({
    sources: [presetSource(sandbox, 'qg', changes)],
    pool: 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s',
  });
  await until('the budget is used up', () => sourceStatus(noria, 'qg')?.state === 'paused');
  expect(sourceStatus(noria, 'qg')).toMatchObject({
    reason: 'the daily budget of 3 distinct IPs is used up',
    drawn: 3,
  });
  expect(sandbox.link('qg').calls).toBe(2);
});

test('links: a list that repeats its addresses renews the members', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0, members: 2 });
  const { url } = sandbox.link('text');
  const noria = await startNoria({
    sources: [
      `  - { name: list, product: link, url: "${url}", interval: 100ms, size: 2, params: { count: 2 }, lifetime: 2s }`,
    ],
    pool: 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s',
  });
  await untilReady(noria, 2);
  const ids = noria.control.members().map(({ id }) => id);
  await until('the link was called again', () => sandbox.link('text').calls >= 4);
  expect(sourceStatus(noria, 'list')).toMatchObject({ drawn: 2, unused: 0 });
  expect(noria.control.members().map(({ id }) => id)).toEqual(ids);
});

test('links: the keys appear in no log, status, metric and file', async () => {
  const sandbox = await openTestSandbox({ paceMs: 0 });
  const dir = mkdtempSync(join(tmpdir(), 'noria-link-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const presets = ['qg', 'pinzan', 'dataeyes'];
  const noria = await startNoria({
    sources: presets.map((preset) => presetSource(sandbox, preset, { interval: '100ms' })),
    more: `state: { dir: "${dir}" }`,
  });
  await untilReady(noria, 6);
  sandbox.setLinkCondition('qg', 'denied');
  noria.control.refillSource('qg');
  const paths = ['api/status', 'api/members', 'metrics'];
  const pages = await Promise.all(paths.map(async (path) => (await fetch(`${noria.admin}/${path}`)).text()));
  await noria.close();
  const files = readdirSync(dir).map((file) => readFileSync(join(dir, file), 'utf8'));
  expect(files.join('')).toMatch(/link-[0-9a-f]{16}/);
  const everything = [...noria.lines, ...pages, ...files].join('\n');
  const secrets = [
    'SANDBOXQ',
    '20260101000000000000',
    'sandboxsecret',
    'c2FuZGJveC10b2tlbjo',
    'sandbox-link',
  ];
  for (const secret of secrets) expect(everything).not.toContain(secret);
});
