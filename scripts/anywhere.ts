/**
 * `npm run anywhere [-- PLACE…]`: shows that noria's set-up, demo and tests depend neither on who runs them nor on where. It needs
 * root on Linux: it copies the checkout to each place, and runs `npm ci`, the demo with requests (scripts/try-demo.ts) and
 * `npm test` there, as that place's user and in its environment. Prints a table; the places' output is in the folder that it names.
 *
 * `--list` names the places, `--tests "PATH…"` runs only these tests, `--json FILE` writes the results, `--keep` keeps the copies.
 * `--all-once` runs `npm run test:all` in the first place. A test that every place skips is a failure, unless `--allow-skips` is given.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';

interface Place {
  readonly about: string;
  /** `ordinary`: a user that this program creates; `unnamed`: a user id without an entry in /etc/passwd. Default: `ordinary`. */
  readonly user?: 'root' | 'ordinary' | 'unnamed';
  /** The name of the checkout's folder. */
  readonly folder?: string;
  readonly umask?: string;
  /** The permissions of the folder above the checkout, which is also HOME. Default: 0700. */
  readonly mode?: number;
  readonly hasHistory?: boolean;
  /** `after`: HOME cannot be written to after the set-up. */
  readonly lockHome?: boolean;
  /** Changes of the environment after the set-up. `HERE` is the folder above the checkout; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly npmrc?: string;
  /** A command that runs another one, as root. */
  readonly within?: readonly string[];
  /** Whether PATH has only Node, npm and the programs of CORE. */
  readonly barePath?: boolean;
  readonly terminal?: boolean;
}

/** A network of its own that only has IPv4 on loopback. */
const NO_NETWORK = [
  'unshare',
  '--net',
  'sh',
  '-c',
  'ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"',
  'sh',
];
const PROXY = 'http://127.0.0.1:9';

const PLACES: Readonly<Record<string, Place>> = {
  'root-private': { about: 'root, a folder with mode 0700, a git checkout', user: 'root', hasHistory: true },
  'user-077': {
    about: 'an ordinary user, umask 077, a path with spaces and other letters, Asia/Shanghai',
    folder: 'mein Zürich 项目',
    umask: '077',
    env: { TZ: 'Asia/Shanghai', LANG: 'zh_CN.UTF-8', LC_ALL: 'zh_CN.UTF-8' },
  },
  'bare-path': {
    about: 'only Node, npm and the core utilities in PATH, LANG=C',
    mode: 0o755,
    barePath: true,
    env: { LANG: 'C', LC_ALL: 'C' },
  },
  'no-network': { about: 'no network but IPv4 on loopback', within: NO_NETWORK, env: { CI: 'true' } },
  'one-core': {
    about: 'one core, 1,024 descriptors, 400 processes, Turkish',
    within: ['taskset', '--cpu-list', '0', 'prlimit', '--nofile=1024:1024', '--nproc=400:400'],
    env: { LANG: 'tr_TR.UTF-8', LC_ALL: 'tr_TR.UTF-8' },
  },
  'no-home': {
    about: 'no HOME, and a home folder that does not exist, a long TMPDIR, America/St_Johns',
    env: { HOME: undefined, TMPDIR: `HERE/${'long/'.repeat(12)}tmp`, TZ: 'America/St_Johns' },
  },
  'locked-home': {
    about: 'a user id without a name, HOME and XDG_CACHE_HOME that cannot be written to, German',
    user: 'unnamed',
    lockHome: true,
    env: { XDG_CACHE_HOME: 'HERE/cache', LANG: 'de_DE.UTF-8', LC_ALL: 'de_DE.UTF-8' },
  },
  proxies: {
    about: "proxies in the environment, unknown keys in npm's configuration, CI=1",
    env: {
      http_proxy: PROXY,
      https_proxy: PROXY,
      HTTP_PROXY: PROXY,
      HTTPS_PROXY: PROXY,
      ALL_PROXY: 'socks5://127.0.0.1:9',
      all_proxy: 'socks5://127.0.0.1:9',
      no_proxy: 'localhost',
      NO_PROXY: 'localhost',
      CI: '1',
    },
    npmrc: 'unknown-key=1\nanother.unknown=yes\n',
  },
  terminal: {
    about: 'on a terminal',
    terminal: true,
    env: { TERM: 'xterm-256color', COLORTERM: 'truecolor' },
  },
};

/** The programs of the place with a bare PATH, besides Node and npm. */
const CORE =
  'sh env cat chmod chown cp mv rm ln ls mkdir mkfifo rmdir mktemp sleep true false echo printf pwd id uname tar gzip sed grep sort head tail wc touch dirname basename readlink uname test tee tr cut find xargs';

const USER = 'noria-anywhere';
const UNNAMED = 64_321;
/** What tests keep between two runs. */
const TOOLS = 'node_modules/.cache';
const LIMIT_MS = 45 * 60_000;
/** The variables of this process without which npm may not reach a registry. */
const REGISTRY = ['NODE_EXTRA_CA_CERTS', 'npm_config_registry', 'SSL_CERT_FILE'];

interface Outcome {
  readonly name: string;
  readonly setUp: string;
  readonly demo: string;
  readonly passed: number;
  readonly failed: readonly string[];
  readonly skipped: readonly string[];
  readonly total: readonly string[];
  readonly seconds: number;
  /** Processes of the place's user that outlived the tests. */
  readonly left: string;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    list: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    'allow-skips': { type: 'boolean', default: false },
    tests: { type: 'string', default: '' },
    'all-once': { type: 'boolean', default: false },
    json: { type: 'string' },
  },
});

if (values.list) {
  for (const [name, { about }] of Object.entries(PLACES)) console.log(`${name.padEnd(14)}${about}`);
} else {
  process.exitCode = await visitAll(positionals.length === 0 ? Object.keys(PLACES) : positionals);
}

async function visitAll(names: readonly string[]): Promise<number> {
  const unknown = names.filter((name) => !(name in PLACES));
  if (unknown.length > 0) return refuse(`no place is called ${unknown.join(', ')}; --list names them`);
  if (process.platform !== 'linux' || process.getuid?.() !== 0)
    return refuse('needs root on Linux: it runs the tests as several users');
  const root = mkdtempSync(join(tmpdir(), 'noria-anywhere-'));
  chmodSync(root, 0o711);
  console.log(`the output of each place is in ${root}/NAME.log`);
  const outcomes: Outcome[] = [];
  const isNew = spawnSync('id', [USER]).status !== 0;
  if (isNew) sh('useradd', '--system', '--home-dir', join(root, 'nobody'), '--shell', '/bin/sh', USER);
  try {
    for (const name of names) {
      console.log(`== ${name}: ${PLACES[name]?.about}`);
      const outcome = await visit(name, root, values['all-once'] && outcomes.length === 0);
      outcomes.push(outcome);
      console.log(rowOf(outcome));
      for (const test of outcome.failed) console.log(`   failed: ${test}`);
    }
  } finally {
    if (isNew) sh('userdel', USER);
    if (!values.keep) for (const name of names) rmSync(join(root, name), { recursive: true, force: true });
  }
  return report(outcomes);
}

function refuse(reason: string): number {
  console.error(`anywhere: ${reason}`);
  return 2;
}

/** Runs everything in one place. */
async function visit(name: string, root: string, isAll: boolean): Promise<Outcome> {
  const place = PLACES[name] ?? { about: '' };
  const here = join(root, name);
  const checkout = join(here, place.folder ?? 'noria');
  const uid = uidOf(place);
  copyCheckout(place, { here, checkout, uid });
  const log = openSync(join(root, `${name}.log`), 'a');
  const run = (command: readonly string[], env: NodeJS.ProcessEnv) =>
    runIn(place, { checkout, uid, log, command, env });
  const startedMs = performance.now();
  const registry = Object.fromEntries(
    REGISTRY.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])),
  );
  const base = { ...registry, PATH: pathOf(place, here), HOME: here, USER, LOGNAME: USER };
  const setUp = await run(['npm', 'ci', '--no-audit', '--no-fund', '--prefer-offline'], {
    ...base,
    PATH: process.env['PATH'],
  });
  if (setUp !== '')
    return { name, setUp, demo: '', passed: 0, failed: [], skipped: [], total: [], seconds: 0, left: '' };
  const tools = join(checkout, 'node_modules/.cache');
  mkdirSync(tools, { recursive: true });
  for (const name of readdirSync(here).filter((each) => each.startsWith('node-')))
    renameSync(join(here, name), join(tools, name));
  chownSync(tools, uid, gidOf(uid));
  const env = { ...base, ...environmentOf(place, here, uid) };
  if (place.lockHome) chmodSync(here, 0o500);
  const demo = await run(['npm', 'run', '--silent', 'try-demo'], env);
  const results = join(here, 'results', 'report.json');
  const report = [
    '--reporter=default',
    '--reporter=json',
    '--reporter=./test/support/skipped-tests.ts',
    `--outputFile.json=${results}`,
  ];
  const tests = values.tests.split(' ').filter(Boolean);
  const test = await run(['npm', 'run', isAll ? 'test:all' : 'test', '--', ...report, ...tests], env);
  if (place.lockHome) chmodSync(here, 0o700);
  const seconds = Math.round((performance.now() - startedMs) / 1_000);
  const left = uid === 0 ? '' : leftOvers(uid);
  return { name, setUp, demo, ...readResults(results, test), seconds, left };
}

function uidOf({ user = 'ordinary' }: Place): number {
  if (user === 'root') return 0;
  return user === 'unnamed' ? UNNAMED : Number(sh('id', '-u', USER));
}

function gidOf(uid: number): number {
  return uid === 0 || uid === UNNAMED ? uid : Number(sh('id', '-g', USER));
}

/** Copies this checkout without what is built or installed, and npm's cache, so that the set-up downloads nothing twice. */
function copyCheckout(
  { umask, mode = 0o700, hasHistory = false, npmrc }: Place,
  { here, checkout, uid }: { readonly here: string; readonly checkout: string; readonly uid: number },
): void {
  const left = new Set(['node_modules', 'dist', '.noria', ...(hasHistory ? [] : ['.git'])]);
  mkdirSync(checkout, { recursive: true });
  const source = process.cwd();
  cpSync(source, checkout, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => dirname(path) !== source || !left.has(path.slice(source.length + 1)),
  });
  mkdirSync(join(here, 'results'));
  mkdirSync(join(here, 'cache'), { mode: 0o500 });
  // test/journeys/package.test.ts downloads this program otherwise
  for (const name of existsSync(TOOLS) ? readdirSync(TOOLS).filter((each) => each.startsWith('node-')) : [])
    cpSync(join(TOOLS, name), join(here, name));
  const cache = join(sh('npm', 'config', 'get', 'cache'), '_cacache');
  if (existsSync(cache)) cpSync(cache, join(here, '.npm/_cacache'), { recursive: true });
  if (npmrc !== undefined) writeFileSync(join(here, '.npmrc'), npmrc);
  chmodSync(here, mode);
  if (umask === '077') sh('chmod', '-R', 'go=', checkout);
  sh('chown', '-R', `${uid}:${gidOf(uid)}`, here);
}

/** The search path of a place: this one, or a folder with few programs. */
function pathOf({ barePath = false }: Place, here: string): string {
  if (!barePath) return process.env['PATH'] ?? '';
  const bin = join(here, 'bin');
  mkdirSync(bin);
  for (const name of [...CORE.split(' '), 'node', 'npm']) {
    const program = programAt(name);
    if (program !== undefined && !existsSync(join(bin, name))) symlinkSync(program, join(bin, name));
  }
  return bin;
}

/** Where the machine has a program; not where this checkout has it. */
function programAt(name: string): string | undefined {
  return (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => !folder.includes('node_modules') && !folder.startsWith('/root/'))
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path));
}

function environmentOf({ env = {} }: Place, here: string, uid: number): NodeJS.ProcessEnv {
  const changes = Object.entries(env).map(([key, value]) => [key, value?.replace('HERE', here)] as const);
  const temporary = Object.fromEntries(changes)['TMPDIR'];
  if (temporary !== undefined) {
    mkdirSync(temporary, { recursive: true });
    sh('chown', '-R', `${uid}:${gidOf(uid)}`, here);
  }
  return Object.fromEntries(changes);
}

/** Runs a command in a place. @returns an empty string, or how the command failed. */
async function runIn(
  { umask = '022', within = [], terminal = false }: Place,
  {
    checkout,
    uid,
    log,
    command,
    env,
  }: {
    readonly checkout: string;
    readonly uid: number;
    readonly log: number;
    readonly command: readonly string[];
    readonly env: NodeJS.ProcessEnv;
  },
): Promise<string> {
  const user =
    uid === 0
      ? []
      : ['setpriv', `--reuid=${uid}`, `--regid=${gidOf(uid)}`, '--clear-groups', '--no-new-privs'];
  const changes = Object.entries(env).flatMap(([key, value]) =>
    value === undefined ? [] : `${key}=${value}`,
  );
  const quoted = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const inner = terminal ? ['script', '--quiet', '--return', '--command', quoted, '/dev/null'] : command;
  const words = [...within, ...user, 'env', '-i', ...changes];
  const set = ['sh', '-c', `umask ${umask} && cd "$0" && exec "$@"`, checkout];
  const [program = '', ...args] = [...words, ...set, ...inner];
  const child = spawn(program, args, { stdio: ['ignore', log, log], detached: true, cwd: '/' });
  const limit = setTimeout(() => process.kill(-(child.pid ?? 0), 'SIGKILL'), LIMIT_MS);
  const [code, signal] = await once(child, 'exit');
  clearTimeout(limit);
  return code === 0 ? '' : `${command.slice(0, 2).join(' ')} ended with ${signal ?? `exit code ${code}`}`;
}

interface TestReport {
  readonly testResults: readonly {
    readonly name: string;
    readonly message?: string;
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

function readResults(
  file: string,
  problem: string,
): Pick<Outcome, 'passed' | 'failed' | 'skipped' | 'total'> {
  if (!existsSync(file)) return { passed: 0, failed: [problem], skipped: [], total: [] };
  const { testResults }: TestReport = JSON.parse(readFileSync(file, 'utf8'));
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  const names = (wanted: (status: string) => boolean) =>
    all.filter(({ status }) => wanted(status)).map(({ fullName }) => fullName);
  const failed = names((status) => status === 'failed');
  return {
    passed: names((status) => status === 'passed').length,
    // A file that cannot be loaded has no tests that could fail.
    failed: failed.length === 0 && problem !== '' ? [problem] : failed,
    skipped: names((status) => status !== 'passed' && status !== 'failed'),
    total: all.map(({ fullName }) => fullName),
  };
}

function leftOvers(uid: number): string {
  const { stdout } = spawnSync('pgrep', ['-u', String(uid), '-a', '--runstates', 'RSDT'], {
    encoding: 'utf8',
  });
  spawnSync('pkill', ['-KILL', '-u', String(uid)]);
  return stdout.trim();
}

function rowOf({ name, setUp, demo, passed, failed, skipped, seconds, left }: Outcome): string {
  const problem = [setUp, demo, left && `left processes: ${left}`].filter(Boolean).join('; ') || 'ok';
  return `${name.padEnd(14)}${String(passed).padStart(7)} passed${String(failed.length).padStart(5)} failed${String(skipped.length).padStart(5)} skipped${String(seconds).padStart(6)} s  set-up and demo: ${problem}`;
}

/** Prints the table. @returns the exit code. */
function report(outcomes: readonly Outcome[]): number {
  console.log('\nplaces:');
  for (const outcome of outcomes) console.log(rowOf(outcome));
  const ran = new Set(
    outcomes.flatMap(({ total, skipped }) => total.filter((name) => !skipped.includes(name))),
  );
  const never = [...new Set(outcomes.flatMap(({ skipped }) => skipped))].filter((name) => !ran.has(name));
  for (const name of never) console.log(`skipped in every place: ${name}`);
  const passed = outcomes.reduce((sum, outcome) => sum + outcome.passed, 0);
  const broken = outcomes.filter(({ setUp, demo, left }) => setUp + demo + left !== '').length;
  const failed =
    outcomes.reduce((sum, outcome) => sum + outcome.failed.length, broken) +
    (values['allow-skips'] ? 0 : never.length);
  if (values.json !== undefined) writeFileSync(values.json, JSON.stringify({ passed, failed }));
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

/** Runs a command of this program's own. @returns what it printed. @throws Error with its output. */
function sh(command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}
