import { expect, onTestFinished, test } from 'vitest';
import { openAdmin } from '../../src/admin/server.ts';
import { runProgram } from '../../src/commands/program.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { fakeBackend, MEMBER, SESSION, SOURCE } from '../admin/fake-backend.ts';
import { adminOptions, openTestAdmin } from '../admin/open-test-admin.ts';
import { fakeTerminal } from './fake-terminal.ts';

async function run(...argv: readonly string[]) {
  const terminal = fakeTerminal();
  const code = await runProgram(argv, terminal);
  return { code, out: terminal.printed(), err: terminal.errors() };
}

test.each([
  [['pause', 'city'], 'pause city', 'city is ready: all 20 members are there\n'],
  [['resume', 'city'], 'resume city', 'city is ready: all 20 members are there\n'],
  [['refill', 'city'], 'refill city', 'city is ready: all 20 members are there\n'],
  [['members', 'evict', 'm1'], 'evict m1', 'member m1 is evicted; its open tunnels continue\n'],
  [['sessions', 'rotate', 'abc'], 'rotate abc false', /^session abc moves to another member/],
  [['sessions', 'rotate', 'abc', '--close'], 'rotate abc true', /^session abc moves to another member/],
  [['sessions', 'forget', 'abc'], 'forget abc', 'session abc is forgotten\n'],
  [['reload'], 'reload', 'configuration reloaded; changed: pool\n'],
] as const)(
  'admin commands: noria %j sends its command and prints the result',
  async (argv, command, printed) => {
    const { url, backend } = await openTestAdmin();
    const { code, out, err } = await run(...argv, '--admin', url);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toEqual(typeof printed === 'string' ? printed : expect.stringMatching(printed));
    expect(backend.commands).toEqual([command]);
  },
);

test.each([
  [['pause', 'city'], SOURCE],
  [['members'], [MEMBER]],
  [['members', '--source', 'city'], [MEMBER]],
  [['members', 'evict', 'm1'], { evicted: 'm1' }],
  [['sessions'], [SESSION]],
  [['sessions', 'rotate', 'abc'], { rotated: 'abc' }],
  [['sessions', 'forget', 'abc'], { forgotten: 'abc' }],
  [['reload'], { changed: ['pool'], restart: [], warnings: [] }],
] as const)('admin commands: noria %j --json prints only JSON', async (argv, expected) => {
  const { url } = await openTestAdmin();
  const { code, out, err } = await run(...argv, '--json', '--admin', url);
  expect({ code, err, out: JSON.parse(out) }).toEqual({ code: 0, err: '', out: expected });
});

test('admin commands: members and sessions are tables', async () => {
  const { url } = await openTestAdmin();
  expect((await run('members', '--admin', url)).out).toMatch(/^MEMBER +SOURCE .*\nm1 +city +ready /);
  const sessions = (await run('sessions', '--admin', url)).out;
  expect(sessions).toBe('SESSION  MEMBER  USES  IDLE  EXPIRES IN\nabc      m1         2   3 s      10 min\n');
});

test.each([
  [['pause', 'cty'], /has no source cty; did you mean city\?/],
  [['resume', 'harbour'], /has no source harbour; its sources are city\n/],
  [['members', '--source', 'cty'], /has no source cty; did you mean city\?/],
  [['members', 'evict', 'm9'], /has no member m9\n.*noria members/],
  [['sessions', 'rotate', 'x:y'], /has no session x:y\n.*noria sessions/],
  [['sessions', 'forget', 'x/y'], /has no session x\/y\n.*noria sessions/],
] as const)(
  'admin commands: noria %j exits with 1 and lists the names that exist',
  async (argv, expected) => {
    const { url } = await openTestAdmin();
    const { code, out, err } = await run(...argv, '--admin', url);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(expected);
  },
);

async function openReload(reload: ReturnType<typeof fakeBackend>['reload']): Promise<string> {
  const admin = await openAdmin(adminOptions({ backend: { ...fakeBackend(), reload } }));
  onTestFinished(() => admin.close());
  return String(admin.port);
}

test('admin commands: reload says what waits for a restart, and prints warnings', async () => {
  const port = await openReload(async () => ({
    changed: ['workers', 'admin'],
    restart: ['workers'],
    warnings: ['noria.yaml:1:1: pool.size: too small'],
    applied: false,
  }));
  expect(await run('reload', '--admin', port)).toEqual({
    code: 0,
    out: [
      'configuration accepted; changed: workers, admin',
      '  The admin API restarts to apply the change; the log of the daemon shows the result.',
      '  These changes since noria started need a restart: workers',
      '',
    ].join('\n'),
    err: 'warning: noria.yaml:1:1: pool.size: too small\n',
  });
});

test.each([
  ['bad-config', 'noria.yaml:1:1: sorces: unknown key\nnoria.yaml:2:1: pol: unknown key', 2],
  ['listen-failed', 'cannot listen on 127.0.0.1:1', 1],
] as const)(
  'admin commands: a reload refused with %s prints every error',
  async (code, message, exitCode) => {
    const port = await openReload(async () => {
      throw new NoriaError(code, message);
    });
    const { code: actual, out, err } = await run('reload', '--admin', port);
    expect({ actual, out }).toEqual({ actual: exitCode, out: '' });
    expect(err).toContain(message);
  },
);
