import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { watchStatus } from '../../src/commands/status.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { MEMBER, STATUS } from '../admin/fake-backend.ts';
import { openTestAdmin } from '../admin/open-test-admin.ts';
import { runNoria } from '../journeys/noria-process.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { fakeTerminal } from './fake-terminal.ts';

async function run(argv: readonly string[], env: Record<string, string> = {}) {
  const terminal = fakeTerminal({ env });
  const code = await runProgram(['status', ...argv], terminal);
  return { code, printed: terminal.printed(), errors: terminal.errors() };
}

test('status: exits with 0 when noria is ready, 1 when it is not, 3 when it does not answer', async () => {
  const ready = await openTestAdmin();
  expect(await run(['--admin', ready.url])).toMatchObject({
    code: 0,
    printed: expect.stringMatching(/^noria 1\.2\.3: serving: 20 members are usable\n.*\nm1 {6}city/s),
  });
  const down = await openTestAdmin({
    status: { state: 'not-serving', ready: false, reason: 'no listener is open' },
  });
  expect(await run(['--admin', down.url])).toMatchObject({
    code: 1,
    printed: expect.stringContaining('noria 1.2.3: not serving: no listener is open'),
  });
  expect(await run(['--admin', '127.0.0.1:1'])).toMatchObject({
    code: 3,
    errors: expect.stringContaining('no answer from http://127.0.0.1:1'),
  });
});

test('status: --json prints only the answer of the API', async () => {
  const { url } = await openTestAdmin();
  const { printed } = await run(['--json', '--admin', url]);
  expect(JSON.parse(printed)).toEqual(STATUS);
  expect(await run(['--json', '--watch', '--admin', url])).toMatchObject({ code: 2 });
});

test('status: address and token come from the command line, the environment or the configuration', async () => {
  const { url, port } = await openTestAdmin({ token: 'river-stone' });
  expect(await run([], { NORIA_ADMIN: url })).toMatchObject({
    code: 2,
    errors: expect.stringContaining('requires a token: set NORIA_ADMIN_TOKEN'),
  });
  expect(await run([], { NORIA_ADMIN: url, NORIA_ADMIN_TOKEN: 'river-stone' })).toMatchObject({ code: 0 });
  const folder = mkdtempSync(join(tmpdir(), 'noria-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'noria.yaml');
  const source = 'sources: [{ name: a, product: free, instance: "1", akey: 0123456789abcdef }]';
  const rest = 'service: { baseUrl: "http://extract.example" }';
  writeFileSync(file, `${source}\n${rest}\nadmin: { address: "0.0.0.0:${port}", token: river-stone }\n`);
  expect(await run(['-c', file])).toMatchObject({ code: 0 });
  writeFileSync(file, `${source}\n${rest}\nadmin: { address: off }\n`);
  expect(await run(['-c', file])).toMatchObject({ code: 2, errors: expect.stringContaining('admin is off') });
});

test('status: --watch runs until it is interrupted', async () => {
  const { url } = await openTestAdmin();
  const watch = runNoria(['status', '--watch', '--admin', url]);
  await until('two statuses', () => (watch.out().match(/^noria 1\.2\.3: serving/gm) ?? []).length === 2);
  watch.child.kill('SIGINT');
  expect(await watch.ended).toEqual([0, null]);
  expect(watch.err()).toBe('');
});

interface Shown {
  readonly interactive: boolean;
  readonly rows?: number;
}

/** A watch of a daemon that answers until `silence` is called. */
function openWatch({ interactive, rows = 24 }: Shown) {
  const terminal = { ...fakeTerminal(), interactive, rows, columns: 60 };
  const clock = new ManualClock();
  const ending = new AbortController();
  let answers = true;
  let asked = 0;
  const watching = watchStatus({
    fetch: async () => {
      asked += 1;
      if (!answers) throw new NoriaError('daemon-unreachable', 'gone');
      return {
        status: STATUS,
        members: Array.from({ length: 40 }, (_, at) => ({ ...MEMBER, id: `m${at}` })),
      };
    },
    url: 'http://127.0.0.1:8889',
    terminal,
    clock,
    signal: ending.signal,
  });
  const nextStatus = async () => {
    await until('it waits for the next request', () => clock.armedCount === 1);
    const before = asked;
    clock.advance(1_000);
    await until('it waits again', () => asked > before && clock.armedCount === 1);
  };
  return { terminal, nextStatus, watching, ending, silence: () => (answers = false) };
}

test('status: --watch redraws the alternate screen, cut to its size', async () => {
  const { terminal, nextStatus, watching, ending } = openWatch({ interactive: true, rows: 12 });
  await nextStatus();
  ending.abort();
  expect(await watching).toBe(true);
  const [entered = '', screen = '', after = ''] = terminal
    .printed()
    .split(/(?<=\?25l)|(?=\p{Cc}\[\?25h)|(?<=\?1049l)/u)
    .filter((part) => !part.endsWith('?1049l'));
  expect(entered).toBe('\u001b[?1049h\u001b[?25l');
  const frames = screen.split('\u001b[H').slice(1);
  expect(frames).toHaveLength(2);
  expect(screen, 'clearing a screen flickers').not.toContain('\u001b[2J');
  for (const frame of frames) {
    const lines = frame.replace('\n\u001b[J', '').split('\n');
    expect(lines).toHaveLength(11);
    expect(lines.at(-1)).toBe('… 39 more lines\u001b[K');
    for (const line of lines) expect(line.replace('\u001b[K', '').length).toBeLessThanOrEqual(60);
  }
  expect(after, 'the last status on the normal screen').toContain('noria 1.2.3: serving');
});

test('status: --watch into a pipe prints whole statuses one after the other', async () => {
  const { terminal, nextStatus, watching, ending } = openWatch({ interactive: false });
  await nextStatus();
  ending.abort();
  await watching;
  expect(terminal.printed()).not.toContain('\u001b');
  expect(terminal.printed().match(/^noria 1\.2\.3: serving/gm)).toHaveLength(2);
  expect(terminal.printed().match(/^m39 /gm)).toHaveLength(2);
});

test('status: --watch reports a daemon that stops answering, and then counts as not ready', async () => {
  const { terminal, nextStatus, watching, ending, silence } = openWatch({ interactive: false });
  await nextStatus();
  silence();
  await nextStatus();
  expect(terminal.printed()).toContain('no answer from http://127.0.0.1:8889 for 1 s; retrying');
  ending.abort();
  expect(await watching).toBe(false);
});
