/**
 * Every client of docs/clients.md runs its snippet, as the page has it, through a whole noria: to an HTTP target and to an
 * HTTPS one. What the target saw decides: several exits where the snippet rotates, one where it has a session.
 *
 * Clients that this machine lacks are skipped; `.ci/run` installs them. Those that take many seconds to start wait for
 * NORIA_CLIENTS=all.
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ClientStage, openClientStage, SCHEMES, type Scheme } from '../support/client-stage.ts';
import { TARGET_CERTIFICATE } from '../support/exit-origin.ts';
import { hasCommand, hasPackage, PYTHON, readSnippets, type Snippet } from '../support/snippets.ts';

const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/google-chrome'].find((path) => existsSync(path));
const APT_HELPER = '/usr/lib/apt/apt-helper';
const CERTIFICATE = resolve(TARGET_CERTIFICATE);

/** What a client needs of this machine; those not named need a command of their own name. */
const NEEDS: Readonly<Record<string, () => boolean>> = {
  environment: () => hasCommand('curl'),
  'curl-socks': () => hasCommand('curl'),
  apt: () => existsSync(APT_HELPER),
  npm: () => hasCommand('npm'),
  pip: () => PYTHON.modules.includes('pip'),
  fetch: () => true,
  java: () => hasCommand('javac'), // a runtime alone does not run a source file
  undici: () => hasPackage('undici'),
  'env-agent': () => hasPackage('undici'),
  socks: () => hasPackage('socks'),
  axios: () => hasPackage('axios') && hasPackage('https-proxy-agent'),
  got: () => hasPackage('got') && hasPackage('https-proxy-agent'),
  chromium: () => CHROMIUM !== undefined,
  playwright: () => CHROMIUM !== undefined && hasPackage('playwright-core'),
  puppeteer: () => CHROMIUM !== undefined && hasPackage('puppeteer-core'),
  selenium: () => PYTHON.modules.includes('selenium') && hasCommand('chromedriver'),
};

/** Clients that take seconds to start: to one target only. */
const HEAVY = new Set(['npm', 'pip', 'scrapy', 'fetch', 'playwright', 'puppeteer']);
/** Clients that take many seconds: when NORIA_CLIENTS=all asks for them, as `.ci/run` does. */
const VERY_HEAVY = new Set(['chromium', 'selenium', 'go', 'java']);
const WANTS_ALL = process.env['NORIA_CLIENTS'] === 'all';

/** Clients whose trust in the target's certificate cannot be arranged by the environment. */
const HTTP_ONLY = new Set(['java', 'socks']);

/** Snippets that are settings are followed by a command that uses them, three times over. */
const COMMANDS: Readonly<Record<string, (target: string, folder: string) => string>> = {
  git: (target) => `git ls-remote ${target}/repo.git`,
  pip: (target, folder) =>
    `${PYTHON.command} -m pip --cache-dir ${folder}/pip --disable-pip-version-check index versions exits --index-url ${target}/simple --trusted-host target.example | head -n 1`,
  npm: (target, folder) =>
    `npm view exits description --userconfig ${folder}/settings --cache ${folder}/npm --registry ${target}/ --cafile ${CERTIFICATE} --no-update-notifier`,
  apt: (target, folder) =>
    `rm -f ${folder}/ip && APT_CONFIG=${folder}/settings ${APT_HELPER} -o Acquire::https::CAInfo=${CERTIFICATE} -o APT::Sandbox::User=root download-file ${target}/ip ${folder}/ip >&2 && cat ${folder}/ip`,
};

/** What has to be other on this machine than on a person's: the browser's place, root without a sandbox, old versions. */
const SUBSTITUTIONS: Readonly<Record<string, readonly (readonly [from: RegExp, to: string])[]>> = {
  chromium: [[/chromium --headless/g, `${CHROMIUM} --no-sandbox --ignore-certificate-errors --headless`]],
  playwright: [
    [/'playwright'/, "'playwright-core'"],
    [/launch\(\)/, `launch({ executablePath: '${CHROMIUM}', args: ['--no-sandbox'] })`],
    [/newContext\(\{/, 'newContext({ ignoreHTTPSErrors: true,'],
  ],
  puppeteer: [
    [/'puppeteer'/, "'puppeteer-core'"],
    [/args: \[/, `executablePath: '${CHROMIUM}', acceptInsecureCerts: true, args: ['--no-sandbox', `],
  ],
  selenium: [
    [
      /(\n +)(options.add_argument\("--headless=new"\))/,
      '$1$2$1options.add_argument("--no-sandbox")$1options.accept_insecure_certs = True',
    ],
  ],
  httpx: [
    [/Client\(proxy=("[^"]+")\)/g, 'Client(**{"proxy" if httpx.__version__ >= "0.26" else "proxies": $1})'],
  ],
};

let stage: ClientStage;
beforeAll(async () => {
  stage = await openClientStage();
});
afterAll(() => stage?.close());

const snippets = readSnippets('docs/clients.md');

test('docs/clients.md: has snippets to run', () => {
  expect(snippets.length).toBeGreaterThan(30);
});

test.skipIf(!hasCommand('curl'))(
  "README.md: the calls that it shows print an exit, the session's the same again",
  async () => {
    const readme = readFileSync('README.md', 'utf8').replaceAll('127.0.0.1:8888', stage.open);
    const calls = [...readme.matchAll(/^\$ (curl .*)$/gm)].map(([, call = '']) => call);
    expect(calls.length).toBe(3);
    const seen = calls.concat(calls.at(-1) ?? '').map(async (call) => {
      const command = call.replace('http://target.example:8080', stage.target('http'));
      return (await execute('bash', ['-c', command], { PATH: process.env['PATH'] })).out;
    });
    const exits = await Promise.all(seen);
    for (const exit of exits) expect(exit).toMatch(/^127\.\d+\.\d+\.\d+\n$/);
    expect(exits[3]).toBe(exits[2]);
  },
);

describe.concurrent('clients', () => {
  for (const snippet of snippets) {
    const { client, language, shows } = snippet;
    const missing = !isHere(snippet);
    for (const scheme of schemesFor(client)) {
      const verb = shows === 'session' ? 'keeps its member' : 'rotates';
      test.skipIf(missing)(`${client} (${language}): ${verb}, for an ${scheme} target`, async () => {
        const { exits, said } = await run(snippet, scheme);
        expect(exits.length, said).toBeGreaterThanOrEqual(3);
        if (shows === 'session') {
          expect(new Set(exits).size, said).toBe(1);
          // A client that stays on one tunnel would have kept its member without.
          const known = stage.daemon.control.sessions().map(({ id }) => id.replace(/^me:/, ''));
          expect(known).toContain(sessionOf(snippet, scheme));
        } else expect(new Set(exits).size, said).toBeGreaterThan(1);
      });
    }
  }
});

test('clients: nothing reached a target but through a member', () => {
  expect(stage.strangers()).toEqual([]);
});

/** A session of its own for each run, in place of the page's. */
function sessionOf({ client }: Snippet, scheme: Scheme): string {
  return `${client.replaceAll('-', '_')}_${scheme}`;
}

function schemesFor(client: string): readonly Scheme[] {
  if (HTTP_ONLY.has(client)) return ['http'];
  return HEAVY.has(client) || VERY_HEAVY.has(client) ? ['https'] : SCHEMES;
}

function isHere({ client, language }: Snippet): boolean {
  if (VERY_HEAVY.has(client) && !WANTS_ALL) return false;
  const needs = NEEDS[client];
  if (needs !== undefined) return needs();
  return language === 'python' ? PYTHON.modules.includes(client) : hasCommand(client);
}

/** Runs a snippet in a folder of its own. Returns the exits that it printed, and all it said. */
async function run(
  snippet: Snippet,
  scheme: Scheme,
): Promise<{ readonly exits: string[]; readonly said: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'noria-client-'));
  try {
    await writeFile(join(folder, 'wgetrc'), `ca_certificate=${CERTIFICATE}\n`);
    const [command, ...args] = await prepare(snippet, scheme, folder);
    const said = await execute(command, args, environmentIn(folder));
    const exits = [...said.out.matchAll(/\b127\.\d+\.\d+\.\d+\b/g)].map(([exit]) => exit);
    return { exits, said: said.out + said.err };
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** The command line that runs a snippet, with noria's and the target's real addresses in it. */
async function prepare(snippet: Snippet, scheme: Scheme, folder: string): Promise<[string, ...string[]]> {
  const { client, language, text } = snippet;
  const target = stage.target(scheme);
  const [targetPort, open, asking] = [target, stage.open, stage.asking].map((address) =>
    address.split(':').at(-1),
  );
  let code = text
    .replaceAll('http://target.example:8080', target)
    .replaceAll(/me-session-\w+/g, `me-session-${sessionOf(snippet, scheme)}`)
    .replaceAll("'target.example', port: 8080", `'target.example', port: ${targetPort}`)
    .replaceAll(/(localhost(?::|['"], (?:port: )?))8888/g, `$1${open}`)
    .replaceAll(/(localhost(?::|['"], (?:port: )?))8890/g, `$1${asking}`);
  for (const [from, to] of SUBSTITUTIONS[client] ?? []) code = code.replace(from, to);
  const uses = COMMANDS[client];
  const thrice = uses === undefined ? '' : `for n in 1 2 3; do ${uses(target, folder)}; done`;
  const file = async (name: string) => {
    await writeFile(join(folder, name), code);
    return join(folder, name);
  };
  if (language === 'sh') return ['bash', '-c', `${code}\n${thrice}`];
  if (uses !== undefined) {
    await file('settings');
    return ['bash', '-c', thrice];
  }
  if (client === 'scrapy')
    return [PYTHON.command, '-m', 'scrapy', 'runspider', '--nolog', await file('exits.py')];
  if (language === 'python') return [PYTHON.command, '-c', code];
  if (language === 'go') return ['go', 'run', await file('exits.go')];
  if (language === 'java') return ['java', await file('Exits.java')];
  return [process.execPath, '--input-type=module', '-e', code];
}

/** Nobody's settings and proxy variables; the target's certificate is trusted in each client's own way. */
function environmentIn(folder: string): NodeJS.ProcessEnv {
  return {
    PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    HOME: folder,
    GOCACHE: process.env['GOCACHE'] ?? join(homedir(), '.cache', 'go-build'),
    WGETRC: join(folder, 'wgetrc'),
    CURL_CA_BUNDLE: CERTIFICATE,
    SSL_CERT_FILE: CERTIFICATE,
    REQUESTS_CA_BUNDLE: CERTIFICATE,
    PIP_CERT: CERTIFICATE,
    NODE_EXTRA_CA_CERTS: CERTIFICATE,
    GIT_SSL_CAINFO: CERTIFICATE,
  };
}

function execute(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ readonly out: string; readonly err: string }> {
  return new Promise((resolve) => {
    execFile(command, args, { env, timeout: 100_000 }, (error, out, err) =>
      resolve({ out, err: err + (error === null ? '' : `\n${error.message}`) }),
    );
  });
}
