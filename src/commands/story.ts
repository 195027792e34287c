/**
 * The story of `noria demo --story`: four things noria does, shown by real requests through the running proxy, each with
 * what to watch on the dashboard. It looks at what the target saw, never at what noria meant to do.
 */
import { request } from 'node:http';
import type { AdminBackend } from '../admin/backend.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';

export interface StoryOptions {
  /** `host:port` of the proxy. */
  readonly proxy: string;
  /** Address of the dashboard. */
  readonly page: string;
  /** Base address of the target, as the members resolve it. */
  readonly target: string;
  readonly sandbox: Pick<Sandbox, 'members' | 'kill'>;
  readonly control: Pick<AdminBackend, 'members'>;
  readonly print: (line: string) => void;
  /** Time to look at the page, after each chapter. */
  readonly pause: () => Promise<void>;
  readonly signal: AbortSignal;
}

/** The least members for which every chapter can be told. */
export const STORY_MEMBERS = 4;

const SESSION = 'story';
const ROTATIONS = 5;
const STICKY_REQUESTS = 4;
const DEAD_TARGET_REQUESTS = 3;
/** A port on which nothing listens. */
const DEAD_TARGET = 'http://target.example:1/';

interface Chapter {
  readonly title: string;
  readonly watch: string;
  /** Returns whether what it tells has come true. */
  readonly tell: (options: StoryOptions) => Promise<boolean>;
}

const CHAPTERS: readonly Chapter[] = [
  {
    title: 'Rotation: each request leaves through another member',
    watch: 'Members: the uses go up one by one, on one member after the other.',
    tell: rotate,
  },
  {
    title: `A sticky session: the user name me-session-${SESSION} keeps one member`,
    watch: `Sessions: ${SESSION} is there, with its member.`,
    tell: stick,
  },
  {
    title: 'A member dies, and the client does not notice',
    watch: `Members: one is quarantined. Sessions: ${SESSION} has moved to another one.`,
    tell: loseMember,
  },
  {
    title: 'A dead target costs no member anything',
    watch: 'Members: as many are ready as before. Failures: the target is named, no member.',
    tell: askDeadTarget,
  },
];

/** Tells it all. Returns whether everything told came true; false at once when `signal` ends it. */
export async function tellStory(options: StoryOptions): Promise<boolean> {
  const { print, page, pause, signal } = options;
  let allTrue = true;
  for (const [index, { title, watch, tell }] of CHAPTERS.entries()) {
    print('');
    print(`${index + 1}. ${title}`);
    const isTrue = await tell(options);
    allTrue &&= isTrue;
    if (!isTrue) print('   That did not go as told: the log says why.');
    print(`   Watch ${page}  ${watch}`);
    await pause();
    if (signal.aborted) return false;
  }
  return allTrue;
}

async function rotate({ proxy, target, print, signal }: StoryOptions): Promise<boolean> {
  print(`   $ curl -x http://${proxy} ${target}/ip    (${ROTATIONS} times)`);
  const exits = new Set<string>();
  for (let n = 0; n < ROTATIONS; n += 1) {
    const { exit } = await ask(proxy, `${target}/ip`, signal);
    print(`   ${exit}`);
    if (exit !== '') exits.add(exit);
  }
  return exits.size >= Math.min(ROTATIONS, STORY_MEMBERS);
}

async function stick({ proxy, target, print, signal }: StoryOptions): Promise<boolean> {
  print(`   $ curl -x http://me-session-${SESSION}:x@${proxy} ${target}/ip    (${STICKY_REQUESTS} times)`);
  const exits: string[] = [];
  for (let n = 0; n < STICKY_REQUESTS; n += 1) {
    exits.push((await ask(proxy, `${target}/ip`, signal, `me-session-${SESSION}`)).exit);
    print(`   ${exits.at(-1)}`);
  }
  return exits[0] !== '' && new Set(exits).size === 1;
}

async function loseMember({ proxy, target, sandbox, print, signal }: StoryOptions): Promise<boolean> {
  const username = `me-session-${SESSION}`;
  const { exit: before } = await ask(proxy, `${target}/ip`, signal, username);
  const victim = sandbox.members().find(({ exit }) => exit === before);
  if (victim === undefined) return false;
  await sandbox.kill(victim.id);
  print(`   ${before}, the session's member, is switched off: its port is closed, nobody has told noria.`);
  const { status, exit, attempts } = await ask(proxy, `${target}/ip`, signal, username);
  print(`   The session's next request: status ${status} from ${exit}, after ${attempts} attempts.`);
  print('   noria found the port closed and took another member before it said anything to the client.');
  return status === 200 && exit !== before && attempts > 1;
}

async function askDeadTarget({ proxy, control, print, signal }: StoryOptions): Promise<boolean> {
  const faults = () => control.members().reduce((sum, member) => sum + member.faults, 0);
  const before = faults();
  print(
    `   $ curl -x http://${proxy} ${DEAD_TARGET}    (${DEAD_TARGET_REQUESTS} times; nobody listens there)`,
  );
  const codes: string[] = [];
  for (let n = 0; n < DEAD_TARGET_REQUESTS; n += 1) {
    const { status, code, attempts } = await ask(proxy, DEAD_TARGET, signal);
    print(`   status ${status} ${code}, after ${attempts} attempts`);
    codes.push(code);
  }
  const added = faults() - before;
  print(
    `   Two members failed alike, so the target is at fault. Faults of members: ${before}, then ${before + added}.`,
  );
  return codes.every((code) => code === 'target-unreachable') && added === 0;
}

interface Answer {
  readonly status: number;
  /** The exit that the target saw; empty unless it answered. */
  readonly exit: string;
  /** noria's own code, where the request failed. */
  readonly code: string;
  /** Members tried; 0 where it is not told. */
  readonly attempts: number;
}

/** One request in absolute form, on a connection of its own, as curl would. */
function ask(proxy: string, url: string, signal: AbortSignal, username?: string): Promise<Answer> {
  const { hostname, port } = new URL(`http://${proxy}`);
  const { host } = new URL(url);
  const auth = username === undefined ? {} : { 'Proxy-Authorization': `Basic ${btoa(`${username}:x`)}` };
  return new Promise((resolve, reject) => {
    const asked = request(
      { host: hostname, port, path: url, headers: { host, ...auth }, agent: false, signal },
      (answer) => {
        let body = '';
        answer.setEncoding('utf8');
        answer.on('data', (chunk) => {
          body += chunk;
        });
        answer.on('error', reject);
        answer.on('end', () => {
          const status = answer.statusCode ?? 0;
          resolve({
            status,
            exit: status === 200 ? body.trim() : '',
            code: String(answer.headers['x-noria-error'] ?? ''),
            attempts: Number(answer.headers['x-noria-attempts'] ?? 0),
          });
        });
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}
