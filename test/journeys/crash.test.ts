/**
 * noria is killed at random moments while clients use it. After each restart it has its members again, and across all
 * restarts it keeps the pace. The tests check the service's counts, noria's files and its log. NORIA_KILLS is the
 * number of kills; a release uses 200, which takes some minutes.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { memberSchema } from '../../src/admin/schemas.ts';
import { randomBelow, seededRandom } from '../../src/core/random.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { freePort } from '../support/free-port.ts';
import { NO_HEDGE, openTestSandbox, sourceLine, WORKERS_LINE } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { type NoriaProcess, runNoria, testFolder, writeIn } from './noria-process.ts';

const KILLS = Number(process.env['NORIA_KILLS'] ?? 4);
/**
 * The maximum time until a kill. In every second cycle, the time begins at the start of the process; in the other cycles, when
 * noria is running.
 */
const LONGEST_LIFE_MS = 1_000;
const MS_PER_CYCLE_AT_MOST = 15_000;
/** Longer than a start of noria. So a noria that has forgotten its last call would call too early. */
const INTERVAL_MS = 2_000;
/** The service may see an interval that is a little shorter, because of loopback and timers. */
const SERVICE_PACE_MS = INTERVAL_MS - 20;

interface Stage {
  readonly proxyPort: number;
  readonly adminPort: number;
  readonly stateDir: string;
  start(): NoriaProcess;
}

async function setUp(sandbox: Sandbox, source: string): Promise<Stage> {
  const folder = testFolder();
  const [proxyPort, adminPort] = [await freePort(), await freePort()];
  const stateDir = join(folder, 'state');
  const file = writeIn(
    folder,
    'noria.yaml',
    `
service: { timeout: 1s } # how long the pace is held for a call that a kill interrupted
sources:
${sourceLine(sandbox, 'pure', 'short-pure', source)}
pool: { fill: size, allowPrivateAddresses: true, safetyMargin: 100ms, minRemaining: 0s }
listeners: [{ address: "127.0.0.1:${proxyPort}", denyTargets: [] }]
admin: { address: "127.0.0.1:${adminPort}" }
state: { dir: "${stateDir}" }
dial: { ${NO_HEDGE} }
${WORKERS_LINE}
`,
  );
  return { proxyPort, adminPort, stateDir, start: () => runNoria(['run', '-c', file]) };
}

/** The snapshot file; empty if there is none. @throws SyntaxError if it is not JSON. */
function snapshotText(stateDir: string): string {
  const path = join(stateDir, 'snapshot.json');
  if (!existsSync(path)) return '';
  const text = readFileSync(path, 'utf8');
  JSON.parse(text);
  return text;
}

/** Ids of the members, from the admin API. */
async function members(adminPort: number): Promise<readonly string[]> {
  const answer = await fetch(`http://127.0.0.1:${adminPort}/api/members`);
  return memberSchema
    .array()
    .parse(await answer.json())
    .map(({ id }) => id);
}

/** Waits until noria has at least this number of members and all are in the snapshot. Returns their ids. */
async function writtenMembers({ adminPort, stateDir }: Stage, least: number) {
  let ids: readonly string[] = [];
  await until(`${least} members are in the snapshot`, async () => {
    ids = await members(adminPort);
    const text = snapshotText(stateDir);
    return ids.length >= least && ids.every((id) => text.includes(JSON.stringify(id)));
  });
  return ids;
}

function get(proxyPort: number, url: string): Promise<number> {
  return new Promise((resolve) => {
    const asked = request({ host: '127.0.0.1', port: proxyPort, path: url, agent: false }, (answer) => {
      answer.resume();
      answer.on('close', () => resolve(answer.complete ? (answer.statusCode ?? 0) : 0));
    });
    asked.on('error', () => resolve(0)); // noria is not running, or is killed during the request
    asked.end();
  });
}

/** Starts two clients that send requests without a pause. Returns a count of the successful ones. */
function keepRequesting(proxyPort: number, url: string): () => number {
  let served = 0;
  let over = false;
  onTestFinished(() => {
    over = true;
  });
  const ask = async () => {
    while (!over) {
      if ((await get(proxyPort, url)) === 200) served += 1;
      await new Promise((next) => setTimeout(next, 10));
    }
  };
  void ask();
  void ask();
  return () => served;
}

test(`crash: killed ${KILLS} times under traffic, noria never calls too early and always reads its files`, {
  timeout: 300_000 + KILLS * MS_PER_CYCLE_AT_MOST,
}, async () => {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-pure', members: 40, lifetimeMs: [2_000, 6_000], paceMs: SERVICE_PACE_MS }],
  });
  const stage = await setUp(sandbox, `interval: ${INTERVAL_MS}ms, size: 4, params: { count: 4 }`);
  const served = keepRequesting(stage.proxyPort, `${sandbox.targetUrl}/ip`);
  const seed = Number(process.env['NORIA_SEED'] ?? process.pid);
  const random = seededRandom(seed);
  for (let kill = 0; kill < KILLS; kill += 1) {
    const noria = stage.start();
    if (kill % 2 === 1) await noria.line('noria is running');
    await new Promise((resolve) => setTimeout(resolve, randomBelow(random, LONGEST_LIFE_MS)));
    noria.child.kill('SIGKILL');
    expect(await noria.ended, `seed ${seed}: ${noria.err()}`).toEqual([null, 'SIGKILL']);
    expect(problemsOf(noria), `seed ${seed}, kill ${kill}`).toEqual([]);
    expect(() => snapshotText(stage.stateDir), `seed ${seed}, kill ${kill}`).not.toThrow();
  }

  const last = stage.start();
  await last.line('noria is running');
  const before = served();
  await until('clients are served again', () => served() > before + 5);
  expect(problemsOf(last)).toEqual([]);
  expect(readdirSync(stage.stateDir).filter((name) => name.includes('broken'))).toEqual([]);
  await until('it draws again', () => sandbox.stats().calls > 1);
  expect(sandbox.stats().paceBreaks, `seed ${seed}`).toBe(0);
  expect(sandbox.strangers()).toEqual([]);
});

/** Log lines about problems with the state folder. */
function problemsOf(noria: NoriaProcess): string[] {
  return noria
    .err()
    .split('\n')
    .filter((line) => /snapshot|journal|state folder|pace file|cannot be understood/.test(line));
}

test('crash: after a kill the same members serve, and missing ones wait for the pace', async () => {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-pure', members: 6, lifetimeMs: 600_000, paceMs: 100 }],
  });
  const stage = await setUp(sandbox, 'interval: 10m, size: 6, params: { count: 3 }');
  const first = stage.start();
  await first.line('noria is running');
  const before = await writtenMembers(stage, 3);
  const { calls } = sandbox.stats();
  first.child.kill('SIGKILL');
  await first.ended;

  const second = stage.start();
  await second.line('noria is running');
  expect(await members(stage.adminPort)).toEqual(before);
  expect(await get(stage.proxyPort, `${sandbox.targetUrl}/ip`)).toBe(200);
  expect(sandbox.stats().calls).toBe(calls);
});

/** Returns the member that serves a session. */
function memberOf(session: string, proxyPort: number, path: string): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const headers = { 'X-Noria-Session': session };
    const asked = request({ host: '127.0.0.1', port: proxyPort, path, headers, agent: false }, (answer) => {
      answer.resume();
      answer.on('end', () => resolve(String(answer.headers['x-noria-member'])));
    });
    asked.on('error', reject).end();
  });
}

test('crash: a session keeps its member across a kill', async () => {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-pure', members: 8, lifetimeMs: 600_000, paceMs: 100 }],
  });
  const stage = await setUp(sandbox, 'interval: 10m, size: 8, params: { count: 8 }');
  const first = stage.start();
  await first.line('noria is running');
  await writtenMembers(stage, 8);
  const url = `${sandbox.targetUrl}/ip`;
  const names = ['one', 'two', 'three', 'four'];
  const before = await Promise.all(names.map((name) => memberOf(name, stage.proxyPort, url)));
  const path = join(stage.stateDir, 'sessions.jsonl');
  const isWritten = () => names.every((name) => readFileSync(path, 'utf8').includes(`"${name}"`));
  await until('the sessions are written', () => existsSync(path) && isWritten());
  first.child.kill('SIGKILL');
  await first.ended;

  const second = stage.start();
  await second.line('noria is running');
  await Promise.all(names.map((_, index) => memberOf(`other${index}`, stage.proxyPort, url)));
  expect(await Promise.all(names.map((name) => memberOf(name, stage.proxyPort, url)))).toEqual(before);
  expect(problemsOf(second)).toEqual([]);
});
