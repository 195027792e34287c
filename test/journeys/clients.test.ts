/**
 * Every client of docs/clients.md runs its snippet through a whole noria, to an HTTP target and to an HTTPS target. The
 * tests run the code as the page prints it, with the addresses of this run instead of those on the page.
 *
 * The tests check the exits that the target saw: several for a snippet that rotates, one for a snippet with a session.
 * Go and Java take long to compile: they run when NORIA_CLIENTS=all, as `.ci/run` sets it.
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES, type Scheme } from '../support/client-stage.ts';
import { TARGET_CERTIFICATE } from '../support/exit-origin.ts';
import { PYTHON } from '../support/python.ts';
import { readSnippets, type Snippet } from '../support/snippets.ts';
import { CHROMIUM, hasCommand, hasPackage } from '../support/tools.ts';

const APT_HELPER = '/usr/lib/apt/apt-helper';
const CERTIFICATE = resolve(TARGET_CERTIFICATE);
/** A folder below `node_modules`, so that JavaScript snippets find the packages that they import. */
const FOLDERS = resolve('node_modules/.cache');

/**
 * Whether this machine has what a client needs. A client that is not listed needs the command or the Python module of
 * its name.
 */
const NEEDS: Readonly<Record<string, () => boolean>> = {
  environment: () => hasCommand('curl'),
  'curl-socks': () => hasCommand('curl'),
  apt: () => existsSync(APT_HELPER),
  pip: () => PYTHON.modules.includes('pip'),
  fetch: () => true,
  java: () => hasCommand('javac'), // a Java runtime without a compiler does not run a source file
  undici: () => hasPackage('undici'),
  'env-agent': () => hasPackage('undici'),
  socks: () => hasPackage('socks'),
  axios: () => hasPackage('axios') && hasPackage('https-proxy-agent'),
  got: () => hasPackage('got') && hasPackage('https-proxy-agent'),
  chromium: () => CHROMIUM !== undefined,
  playwright: () => CHROMIUM !== undefined && hasPackage('playwright-core'),
  puppeteer: () => CHROMIUM !== undefined && hasPackage('puppeteer-core'),
};

/** Clients that need half a minute to compile. */
const COMPILED = new Set(['go', 'java']);
const RUNS_COMPILED = process.env['NORIA_CLIENTS'] === 'all';

/** Clients that take long to start run each snippet with only one target; with two snippets, some use both targets. */
const SLOW: Readonly<Record<string, (shows: Snippet['shows']) => Scheme>> = {
  npm: () => 'https',
  ncat: () => 'http', // plain TCP
  socat: () => 'http',
  pip: () => 'https',
  scrapy: () => 'https',
  fetch: () => 'https',
  go: () => 'https',
  requests: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  httpx: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  aiohttp: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  undici: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  axios: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  got: (shows) => (shows === 'rotation' ? 'https' : 'http'),
  // No environment variable makes these clients trust the target's certificate; browser.test.ts tests browsers with TLS.
  java: () => 'http',
  socks: () => 'http',
  chromium: () => 'http',
  playwright: () => 'http',
  puppeteer: () => 'http',
};

/**
 * Snippets that are settings. This command, which uses the settings, runs twice after them, in the folder of the snippet, which also
 * has all files of the client. `CERTIFICATE` is a variable, because a path may contain what a shell interprets.
 */
const COMMANDS: Readonly<Record<string, (target: string) => string>> = {
  git: (target) => `git ls-remote ${target}/repo.git`,
  pip: (target) =>
    `"$PYTHON" -m pip --cache-dir pip --disable-pip-version-check index versions exits --index-url ${target}/simple --trusted-host target.example | head -n 1`,
  npm: (target) =>
    `npm view exits description --userconfig "$PWD/settings" --globalconfig "$PWD/none" --cache "$PWD/npm" --registry ${target}/ --cafile "$CERTIFICATE" --no-update-notifier`,
  apt: (target) =>
    `rm -f ip && APT_CONFIG=settings ${APT_HELPER} -o "Acquire::https::CAInfo=$CERTIFICATE" -o APT::Sandbox::User= -o "Dir::State=$PWD/apt" -o "Dir::Cache=$PWD/apt" download-file ${target}/ip ip >&2 && cat ip`,
};

/** Replacements for an installed browser, because Chromium refuses to run as root in its own sandbox. */
const STAND_INS: Readonly<Record<string, readonly [path: string, text: string]>> = {
  chromium: ['bin/chromium', `#!/bin/sh\nexec ${CHROMIUM} --no-sandbox "$@"\n`],
  playwright: [
    'node_modules/playwright/index.js',
    `import { chromium as core } from 'playwright-core';
const launch = (options) => core.launch({ ...options, executablePath: '${CHROMIUM}', args: ['--no-sandbox'] });
export const chromium = { launch };\n`,
  ],
  puppeteer: [
    'node_modules/puppeteer/index.js',
    `import core from 'puppeteer-core';
const launch = ({ args }) => core.launch({ executablePath: '${CHROMIUM}', args: ['--no-sandbox', ...args] });
export default { launch };\n`,
  ],
};

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());
afterEach(() => expect(stage.strangers(), 'connections past noria').toEqual([]));

const snippets = readSnippets('docs/clients.md');

test('docs/clients.md: has snippets to run', () => {
  expect(snippets.length).toBeGreaterThan(30);
});

test.skipIf(!hasCommand('curl') || !hasCommand('bash'))(
  'README.md: each call it shows prints an exit, and a session prints the same exit again',
  async () => {
    const readme = readFileSync('README.md', 'utf8').replaceAll('127.0.0.1:8888', stage.open);
    const calls = [...readme.matchAll(/^\$ (curl .*)$/gm)].map(([, call = '']) => call);
    expect(calls.length).toBe(3);
    const printed = calls.concat(calls.at(-1) ?? '').map(async (call) => {
      const command = call.replace('http://target.example:8080', stage.target('http'));
      return (await execute('bash', ['-c', command], { PATH: process.env['PATH'] }, '.')).out;
    });
    const exits = await Promise.all(printed);
    for (const exit of exits) expect(exit).toMatch(/^127\.\d+\.\d+\.\d+\n$/);
    expect(exits[3]).toBe(exits[2]);
  },
);

describe.concurrent('clients', () => {
  for (const snippet of snippets) {
    const { client, language, shows } = snippet;
    if (shows === 'report') continue;
    if (COMPILED.has(client) && !RUNS_COMPILED) continue;
    const slow = SLOW[client];
    for (const scheme of slow === undefined ? SCHEMES : [slow(shows)]) {
      const does = shows === 'session' ? 'keeps its member' : 'rotates';
      test.skipIf(!isHere(snippet))(`${client} (${language}): ${does}, for an ${scheme} target`, async () => {
        const { exits, printed } = await run(snippet, scheme);
        expect(exits.length, printed).toBeGreaterThanOrEqual(client in COMMANDS ? 2 : 3);
        expect(new Set(exits).size === 1, printed).toBe(shows === 'session');
        // A client that stays on one tunnel keeps its member even without a session.
        if (shows === 'session') expect(exits[0], printed).toBe(exitOfSession(snippet));
      });
    }
  }
});

describe.concurrent('clients: report a ban', () => {
  const reports = snippets.filter(({ shows }) => shows === 'report');
  test('clients: twenty clients of docs/clients.md report a ban, each in at most three lines', () => {
    expect(new Set(reports.map(({ client }) => client)).size).toBeGreaterThanOrEqual(20);
    for (const { client, text } of reports) {
      const lines = text.split('\n').filter((line) => line !== '' && !/^(?:import|from) /.test(line));
      expect(lines.length, client).toBeLessThanOrEqual(3);
    }
  });
  for (const report of reports) {
    const { client, language } = report;
    if (COMPILED.has(client) && !RUNS_COMPILED) continue;
    test.skipIf(!isHere(report))(`${client} (${language}): reports a ban through the proxy`, async () => {
      const host = `${client.replace('_', '-')}.example`;
      const program = programOf(report, host);
      await useSession(program.text.includes('8888') ? stage.open : stage.withUsers);
      const { printed } = await run(program, 'http');
      const { bans = 0 } = stage.daemon.control.sites().find(({ name }) => name === host) ?? {};
      expect(bans, printed).toBe(1);
    });
  }
});

/** The place in a snippet where the lines of its report belong. */
const PLACES: Readonly<Record<string, RegExp>> = {
  scrapy: /$/,
  playwright: /(?=await browser\.close\(\);)/,
  puppeteer: /(?=await browser\.close\(\);)/,
  go: /(?=\n\}\n$)/,
  java: /(?=\n {2}\}\n\}\n$)/,
};

/** Returns a whole program: some reports are lines of the client's own snippet, with the session if it has one. */
function programOf(report: Snippet, host: string): Snippet {
  const text = report.text.replace('shop.example', host);
  const place = PLACES[report.client];
  if (place === undefined) return { ...report, text };
  const own = snippets.filter(({ client, shows }) => client === report.client && shows !== 'report');
  const around = own.find(({ shows }) => shows === 'session') ?? own[0];
  if (around === undefined) throw new Error(`docs/clients.md has no snippet for ${report.client}`);
  const inSession = around.text.replace(/"http:\/\/localhost/, '"http://me-session-cart:x@localhost');
  return { ...report, text: inSession.replace(place, () => `\n${text}`) };
}

/** Makes one request with the session that the snippets report on. */
function useSession(proxy: string): Promise<void> {
  const [host, port] = proxy.split(':');
  const authorization = `Basic ${Buffer.from('me-session-cart:x').toString('base64')}`;
  return new Promise((resolve, reject) => {
    const path = `${stage.target('http')}/ip`;
    get({ host, port, path, headers: { 'Proxy-Authorization': authorization } }, (answer) => {
      answer.resume().on('end', resolve);
    }).on('error', reject);
  });
}

/** Returns the exit of the member that noria keeps for the session in the snippet. */
function exitOfSession({ text }: Snippet): string | undefined {
  const name = /me-session-(\w+)/.exec(text)?.[1];
  const id = text.includes('8890') ? `me:${name}` : name; // port 8890 is the listener with users
  const { control } = stage.daemon;
  const session = control.sessions().find((known) => known.id === id);
  const member = control.members().find(({ id }) => id === session?.member);
  return stage.sandbox.members().find(({ host, port }) => host === member?.host && port === member.port)
    ?.exit;
}

function isHere({ client, language }: Snippet): boolean {
  if ((language === 'sh' || client in COMMANDS) && !hasCommand('bash')) return false;
  const needs = NEEDS[client];
  if (needs !== undefined) return needs();
  return language === 'python' ? PYTHON.modules.includes(client) : hasCommand(client);
}

/** Runs a snippet in a new folder. Returns the exits that it printed, and everything that it printed. */
async function run(
  snippet: Snippet,
  scheme: Scheme,
): Promise<{ readonly exits: string[]; readonly printed: string }> {
  await mkdir(FOLDERS, { recursive: true });
  const folder = await mkdtemp(join(FOLDERS, 'client-'));
  try {
    await writeFile(join(folder, 'wgetrc'), `ca_certificate=${CERTIFICATE}\n`);
    const [path, text] = STAND_INS[snippet.client] ?? [];
    if (path !== undefined && text !== undefined) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), text, { mode: 0o755 });
    }
    const [command, ...args] = await prepare(snippet, scheme, folder);
    const { out, err } = await execute(command, args, environmentIn(folder), folder);
    const exits = [...out.matchAll(/\b127\.\d+\.\d+\.\d+\b/g)].map(([exit]) => exit);
    return { exits, printed: out + err };
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Returns the command line that runs a snippet, with the addresses of this run instead of those on the page. */
async function prepare(snippet: Snippet, scheme: Scheme, folder: string): Promise<[string, ...string[]]> {
  const { client, language, text } = snippet;
  const target = stage.target(scheme);
  const [targetPort, open, asking] = [target, stage.open, stage.withUsers].map((address) =>
    address.split(':').at(-1),
  );
  const code = text
    .replaceAll('http://target.example:8080', target)
    .replaceAll(/target\.example([ :])8080/g, `target.example$1${targetPort}`)
    .replaceAll('proxyport=8888', `proxyport=${open}`)
    .replaceAll("'target.example', port: 8080", `'target.example', port: ${targetPort}`)
    .replaceAll(/(localhost(?::|['"], (?:port: )?))8888/g, `$1${open}`)
    .replaceAll(/(localhost(?::|['"], (?:port: )?))8890/g, `$1${asking}`);
  const uses = COMMANDS[client];
  const twice = uses === undefined ? '' : `for n in 1 2; do ${uses(target)}; done`;
  const file = async (name: string) => {
    await writeFile(join(folder, name), code);
    return join(folder, name);
  };
  if (language === 'sh') return ['bash', '-c', `${code}\n${twice}`];
  if (uses !== undefined) {
    await file('settings');
    return ['bash', '-c', twice];
  }
  if (client === 'scrapy')
    return [PYTHON.command, '-m', 'scrapy', 'runspider', '--nolog', await file('exits.py')];
  if (language === 'python') return [PYTHON.command, '-c', code];
  if (language === 'go') return ['go', 'run', await file('exits.go')];
  if (language === 'java') return ['java', await file('Exits.java')];
  return [process.execPath, await file('exits.mjs')];
}

/**
 * An environment without a user's settings and proxy variables. Each client trusts the target's certificate by its own
 * variable.
 */
function environmentIn(folder: string): NodeJS.ProcessEnv {
  return {
    PATH: `${join(folder, 'bin')}:${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    HOME: folder,
    NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
    GOCACHE: process.env['GOCACHE'] ?? join(homedir(), '.cache', 'go-build'),
    WGETRC: join(folder, 'wgetrc'),
    CURL_CA_BUNDLE: CERTIFICATE,
    SSL_CERT_FILE: CERTIFICATE,
    REQUESTS_CA_BUNDLE: CERTIFICATE,
    PIP_CERT: CERTIFICATE,
    PIP_CONFIG_FILE: '/dev/null',
    CERTIFICATE,
    PYTHON: PYTHON.command,
    GIT_CONFIG_NOSYSTEM: '1',
    NODE_EXTRA_CA_CERTS: CERTIFICATE,
    GIT_SSL_CAINFO: CERTIFICATE,
  };
}

function execute(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  cwd: string,
): Promise<{ readonly out: string; readonly err: string }> {
  return new Promise((resolve) => {
    execFile(command, args, { env, cwd, timeout: 250_000 }, (error, out, err) =>
      resolve({ out, err: err + (error === null ? '' : `\n${error.message}`) }),
    );
  });
}
