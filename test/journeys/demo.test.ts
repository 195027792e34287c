/** A newcomer starts the demo, runs the commands that it prints, and ends it with Ctrl-C. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { NORIA, testFolder } from './noria-process.ts';

const HAS_STORE = hasCommand('valkey-server') || hasCommand('redis-server');
const [PROGRAM, ...BEFORE] = NORIA;
const ANY_PORTS = ['--port', '0', '--admin-port', '0', '--target-port', '0'];

function startDemo(env: NodeJS.ProcessEnv, ...args: string[]) {
  const child = spawn(PROGRAM, [...BEFORE, 'demo', ...ANY_PORTS, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let out = '';
  child.stdout.on('data', (chunk) => {
    out += chunk;
  });
  let log = '';
  child.stderr.on('data', (chunk) => {
    log += chunk;
  });
  const ended = once(child, 'exit');
  const untilReady = () =>
    until('the demo has printed its commands', () => {
      if (child.exitCode !== null) throw new Error(`the demo ended with ${child.exitCode}: ${log}`);
      return out.includes('Ctrl-C');
    });
  return { child, ended, out: () => out, untilReady };
}

/**
 * Repeats a command with a session until the target has seen the same exit three times. The demo hedges, so in a slow moment of
 * the machine a single connection may come through another member.
 */
async function exitOfSession(command: readonly string[]): Promise<string> {
  const counts = new Map<string, number>();
  for (;;) {
    const { out } = await curl(...command);
    expect(out).toMatch(/^127\./);
    const count = (counts.get(out) ?? 0) + 1;
    if (count === 3) return out;
    counts.set(out, count);
    expect(counts.size, 'exits of one session').toBeLessThan(4);
  }
}

test.skipIf(!hasCommand('curl'))(
  'demo: the printed commands work, and each call shows another exit',
  async () => {
    const { out, untilReady } = startDemo({}, '--members', '6');
    await untilReady();
    const lines = [...out().matchAll(/^ {2}curl (.*)$/gm)].map(([, args = '']) => args.split(' '));
    expect(lines.length).toBe(3);
    const [http = [], socks = [], session = []] = lines;
    const first = await curl(...http);
    expect(first).toMatchObject({ exitCode: 0, out: expect.stringMatching(/^127\./) });

    const exits = new Set<string>();
    for (let n = 0; n < 6; n += 1) exits.add((await curl(...(n % 2 === 0 ? http : socks))).out);
    expect(exits.size).toBeGreaterThanOrEqual(5); // a hedge may use a member, so that the next request gets another member
    expect(await exitOfSession(session)).toBe(await exitOfSession(session));
    const page = /dashboard {2}(\S+)/.exec(out())?.[1] ?? '';
    expect((await curl(`${page}readyz`)).out).toMatch(/^serving: 6 members/);
  },
);

test.skipIf(!hasCommand('curl'))(
  'demo: --host on all addresses requires the password and the token that it prints',
  async () => {
    const { out, untilReady } = startDemo({}, '--members', '2', '--host', '0.0.0.0');
    await untilReady();
    const lines = [...out().matchAll(/^ {2}curl (.*)$/gm)].map(([, args = '']) => args.split(' '));
    expect(lines.length).toBe(3);
    for (const line of lines) expect((await curl(...line)).out).toMatch(/^127\./);

    const [, proxy = '', target = ''] = lines[0] ?? [];
    const { host } = new URL(proxy);
    const status = (...args: string[]) => curl('-o', '/dev/null', '-w', '%{http_code}', ...args);
    expect((await status('-x', `http://${host}`, target)).out).toBe('407');
    const loopback = target.replace('target.example', '127.0.0.1');
    expect((await status('-x', proxy, loopback)).out, 'the network of the host').toBe('403');

    const [, page = '', token = ''] = /dashboard {2}(\S+) {2}token (\S+)/.exec(out()) ?? [];
    const api = `${page}api/status`;
    expect((await status(api)).out).toBe('401');
    expect((await status('-H', `Authorization: Bearer ${token}`, api)).out).toBe('200');
  },
);

test.each([[[]], [['--replicas', '2']]])(
  'demo: Ctrl-C ends it with exit code 0, and the last line of output and log says so: %j',
  async (args) => {
    const file = join(testFolder(), 'demo.txt');
    const both = openSync(file, 'a');
    onTestFinished(() => closeSync(both));
    const child = spawn(PROGRAM, [...BEFORE, 'demo', ...ANY_PORTS, '--members', '2', ...args], {
      stdio: ['ignore', both, both],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    const ended = once(child, 'exit');
    await until('the demo has printed its commands', () => {
      const printed = readFileSync(file, 'utf8');
      if (child.exitCode !== null) throw new Error(`the demo ended with ${child.exitCode}: ${printed}`);
      return printed.includes('Ctrl-C');
    });
    child.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
    expect(readFileSync(file, 'utf8').trimEnd().split('\n').at(-1)).toMatch(/^The demo has ended\./);
  },
);

test.skipIf(!hasCommand('npm'))('demo: SIGTERM to npm start ends the demo, too', async () => {
  const npm = spawn('npm', ['start', '--', ...ANY_PORTS, '--members', '2'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  onTestFinished(() => {
    if (isRunning(-(npm.pid ?? 0))) process.kill(-(npm.pid ?? 0), 'SIGKILL');
  });
  let out = '';
  npm.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    out += chunk;
  });
  await until('the demo has printed its commands', () => out.includes('Ctrl-C'));
  npm.kill('SIGTERM');
  await once(npm, 'exit');
  await until('npm has left no process in its group', () => !isRunning(-(npm.pid ?? 0)));
  expect(out).toContain('The demo has ended.');
});

test.skipIf(!HAS_STORE || !hasCommand('curl'))(
  'demo: --replicas runs norias of one fleet, in which a session has one exit, and ends its store',
  async () => {
    const { child, ended, out, untilReady } = startDemo({}, '--replicas', '3', '--members', '6');
    await untilReady();
    const store = Number(/kill -STOP (\d+)/.exec(out())?.[1]);
    onTestFinished(() => {
      if (isRunning(store)) process.kill(store, 'SIGKILL');
    });
    const { sessions: lines, exits, pages } = commandsIn(out());
    const [first, ...others] = lines;
    const exit = await exitOfSession(first ?? []);
    for (const line of others) {
      // On a busy machine, the store may need longer than a new session waits for it; then all agree soon.
      await until('the replica uses the same exit', async () => (await exitOfSession(line)) === exit);
    }
    for (const line of exits) expect((await curl(...line)).out).toMatch(/^127\./);
    const { fleet } = JSON.parse((await curl(`${pages[2]}api/status`)).out);
    expect(fleet).toMatchObject({ name: 'demo', replica: 'replica-3', store: 'connected' });
    child.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
    expect(isRunning(store)).toBe(false);
  },
);

test.skipIf(!hasCommand('curl'))(
  'demo: --replicas without a store in the search path runs norias of one fleet in memory',
  async () => {
    const { child, ended, out, untilReady } = startDemo(
      { PATH: '/nonexistent' },
      '--replicas',
      '3',
      '--members',
      '6',
    );
    await untilReady();
    expect(out()).toMatch(/3 norias in one fleet with 6 members, in memory\n/);
    expect(out()).toMatch(/Neither valkey-server nor redis-server is in the search path/);
    const { sessions, exits, pages } = commandsIn(out());
    const [first = [], ...others] = sessions;
    const exit = await exitOfSession(first);
    for (const line of others) expect(await exitOfSession(line)).toBe(exit);
    for (const line of exits) expect((await curl(...line)).out).toMatch(/^127\./);

    const read = async (page: string, path: string) => JSON.parse((await curl(`${page}api/${path}`)).out);
    const { fleet } = await read(pages[2] ?? '', 'status');
    expect(fleet).toMatchObject({ name: 'demo', replica: 'replica-3', store: 'connected' });
    expect(fleet.replicas.map(({ name }: { name: string }) => name)).toEqual([
      'replica-1',
      'replica-2',
      'replica-3',
    ]);
    const membersOn = (page: string): Promise<{ id: string; drawnBy: string }[]> => read(page, 'members');
    const idsOn = async (page: string) => (await membersOn(page)).map(({ id }) => id).sort();
    await until('all have the same members', async () => {
      const [ids, ...same] = await Promise.all(pages.map(idsOn));
      return same.every((other) => other.join() === ids?.join());
    });
    const drawers = (await membersOn(pages[0] ?? '')).map(({ drawnBy }) => drawnBy);
    expect(drawers.every((name) => /^replica-[123]$/.test(name))).toBe(true);

    await curl('-X', 'POST', '-H', 'Content-Type: application/json', `${pages[0]}api/sources/city/pause`);
    await until('the others are paused, too', async () => {
      const states = await Promise.all(
        pages.map(async (page) => (await read(page, 'status')).sources[0].state),
      );
      return states.every((state) => state === 'paused');
    });
    child.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
  },
);

/** The printed commands with a session and those without, and the dashboards. */
function commandsIn(out: string) {
  const lines = [...out.matchAll(/^ {2}curl (.*)$/gm)].map(([, args = '']) => args.split(' '));
  const pages = [...out.matchAll(/dashboard {2}(\S+)/g)].map(([, page = '']) => page);
  expect([lines.length, pages.length]).toEqual([6, 3]);
  return { sessions: lines.slice(0, 3), exits: lines.slice(3), pages };
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false; // handled: there is no such process
  }
}
