/**
 * `noria demo --story`: demonstrates four features with real requests through noria's listener, and says where to look
 * on the dashboard. The target's answers show whether a step succeeded.
 */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { pause, systemClock } from '../core/clock.ts';
import type { Daemon } from '../daemon/daemon.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import type { Terminal } from './terminal.ts';

export const STORY_MEMBERS = 4;

const PAUSE_MS = 4_000;
const SESSION = 'story';
const ROTATIONS = 5;
const STICKY_REQUESTS = 4;
const DEAD_TARGET_REQUESTS = 3;
const DEAD_TARGET = 'http://target.example:1/';

const CHAPTERS = [
  {
    title: 'Rotation: each request uses another member',
    look: 'Members: the use counts rise one after the other.',
    show: rotate,
  },
  {
    title: `A sticky session: the user name me-session-${SESSION} keeps one member`,
    look: `Sessions: ${SESSION} is listed with its member.`,
    show: keepSession,
  },
  {
    title: 'A member fails, and the client does not notice',
    look: `Members: one is quarantined. Sessions: ${SESSION} has moved to another member.`,
    show: loseMember,
  },
  {
    title: 'A target is down, and noria blames no member',
    look: 'Members: the number of ready members stays the same. Failures: the entries name the target, not a member.',
    show: askDeadTarget,
  },
];

type Stage = ReturnType<typeof stageOf>;

/** @returns whether each step succeeded; true also if a signal ended the story. */
export async function tellStory(
  daemon: Daemon,
  sandbox: Sandbox,
  target: string,
  terminal: Terminal,
  signalled: Promise<unknown>,
): Promise<boolean> {
  const interruption = new AbortController();
  const { signal } = interruption;
  const interrupted = signalled.then(() => interruption.abort());
  const stage = stageOf(daemon, sandbox, `${target}/ip`, terminal, signal);
  const page = `http://${daemon.addresses.admin ?? ''}/`;
  let allSucceeded = true;
  try {
    for (const [index, { title, look, show }] of CHAPTERS.entries()) {
      terminal.print('');
      terminal.print(`${index + 1}. ${title}`);
      const succeeded = await show(stage);
      allSucceeded &&= succeeded;
      if (!succeeded) terminal.print('   This step failed; the log says why.');
      terminal.print(`   See ${page}  ${look}`);
      if (terminal.interactive) await pause(systemClock, PAUSE_MS, signal);
      if (signal.aborted) return true;
    }
  } catch (error) {
    if (signal.aborted) return true; // ignored: Ctrl-C aborted a request of the story
    throw error;
  }
  if (terminal.interactive) {
    terminal.print('');
    terminal.print(
      `The story has ended. The proxy ${stage.proxy} and the dashboard ${page} run until Ctrl-C.`,
    );
    await interrupted;
  }
  return allSucceeded;
}

function stageOf(daemon: Daemon, sandbox: Sandbox, ipUrl: string, terminal: Terminal, signal: AbortSignal) {
  const [proxy = ''] = daemon.addresses.listeners;
  return {
    proxy,
    ipUrl,
    sandbox,
    print: (line: string) => terminal.print(line),
    faults: () => daemon.control.members().reduce((sum, member) => sum + member.faults, 0),
    ask: (url: string, username?: string) => ask(proxy, url, signal, username),
  };
}

async function rotate({ proxy, ipUrl, print, ask }: Stage): Promise<boolean> {
  print(`   $ curl -x http://${proxy} ${ipUrl}    (${ROTATIONS} times)`);
  const exits = new Set<string>();
  for (let n = 0; n < ROTATIONS; n += 1) {
    const { exit } = await ask(ipUrl);
    print(`   ${exit}`);
    if (exit !== '') exits.add(exit);
  }
  return exits.size >= Math.min(ROTATIONS, STORY_MEMBERS);
}

async function keepSession({ proxy, ipUrl, print, ask }: Stage): Promise<boolean> {
  print(`   $ curl -x http://me-session-${SESSION}:x@${proxy} ${ipUrl}    (${STICKY_REQUESTS} times)`);
  const exits: string[] = [];
  for (let n = 0; n < STICKY_REQUESTS; n += 1) {
    exits.push((await ask(ipUrl, `me-session-${SESSION}`)).exit);
    print(`   ${exits.at(-1)}`);
  }
  return exits[0] !== '' && new Set(exits).size === 1;
}

async function loseMember({ ipUrl, sandbox, print, ask }: Stage): Promise<boolean> {
  const username = `me-session-${SESSION}`;
  const { exit: before } = await ask(ipUrl, username);
  const victim = sandbox.members().find(({ exit }) => exit === before);
  if (victim === undefined) return false;
  await sandbox.kill(victim.id);
  print(`   The demo now closes the port of ${before}, the session's member. noria does not know.`);
  const { status, exit, attempts } = await ask(ipUrl, username);
  print(`   The session's next request: status ${status} through ${exit}, after ${attempts} attempts.`);
  print(
    '   noria could not connect to the member of the session, so it used another one before it answered the client.',
  );
  return status === 200 && exit !== before && attempts > 1;
}

async function askDeadTarget({ proxy, faults, print, ask }: Stage): Promise<boolean> {
  const before = faults();
  print(
    `   $ curl -x http://${proxy} ${DEAD_TARGET}    (${DEAD_TARGET_REQUESTS} times; nothing listens there)`,
  );
  const codes: string[] = [];
  for (let n = 0; n < DEAD_TARGET_REQUESTS; n += 1) {
    const { status, code, attempts } = await ask(DEAD_TARGET);
    print(`   status ${status} ${code}, after ${attempts} attempts`);
    codes.push(code);
  }
  const added = faults() - before;
  print(
    `   Two members failed in the same way, so the target is at fault. Faults of members: ${before} before, ${before + added} after.`,
  );
  return codes.every((code) => code === 'target-unreachable') && added === 0;
}

async function ask(proxy: string, url: string, signal: AbortSignal, username: string | undefined) {
  const { hostname, port } = new URL(`http://${proxy}`);
  const { host } = new URL(url);
  const auth = username === undefined ? {} : { 'Proxy-Authorization': `Basic ${btoa(`${username}:x`)}` };
  const options = { host: hostname, port, path: url, headers: { host, ...auth }, agent: false, signal };
  const [response]: IncomingMessage[] = await once(request(options).end(), 'response');
  const body = response === undefined ? '' : await text(response);
  const { statusCode: status = 0, headers = {} } = response ?? {};
  return {
    status,
    exit: status === 200 ? body.trim() : '',
    code: String(headers['x-noria-error'] ?? ''),
    attempts: Number(headers['x-noria-attempts'] ?? 0),
  };
}
