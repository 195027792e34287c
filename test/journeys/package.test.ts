/**
 * The published tarball works: installed into an empty folder with production dependencies only, and started as an
 * unprivileged user who cannot write to it, on the oldest supported Node and on the current one. The oldest Node is skipped if
 * npm cannot reach a registry.
 */
import {
  chownSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { OPEN_FOLDER, runNoria, runProgram, testFolder, UNPRIVILEGED, writeIn } from './noria-process.ts';

/** The oldest version in `engines`. */
const OLDEST_NODE = '22.22.2';
const NODE_PACKAGE = `node-${process.platform}-${process.arch}`;
/** The program of the oldest Node. npm needs some seconds of CPU time for its 100 MB, so it remains for later runs. */
const OLDEST_PROGRAM = resolve('node_modules/.cache', `node-${OLDEST_NODE}`);
const LIMIT_MS = 300_000;

let folder = '';
let installed = '';
let tarball = '';

/**
 * Installs the tarball as npm does, but copies the production dependencies of the checkout: to install them again takes npm five
 * seconds of CPU time.
 */
function installPackage(app: string): void {
  const modules = join(app, 'node_modules');
  mkdirSync(join(modules, '.bin'), { recursive: true });
  expect(runProgram('tar', ['-xzf', tarball], modules).status).toBe(0);
  renameSync(join(modules, 'package'), installed);
  const { bin } = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
  symlinkSync(join('../noria', bin.noria), join(modules, '.bin/noria'));
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8'));
  const dependencies = Object.keys(packages).filter(
    (path) => /^node_modules\/(@[^/]+\/)?[^/]+$/.test(path) && !packages[path].dev && existsSync(path),
  );
  expect(dependencies.length).toBeGreaterThan(10);
  for (const path of dependencies) {
    cpSync(path, join(app, path), { recursive: true });
  }
}

/** @returns an empty string, or why npm cannot reach the registry. @throws Error for any other failure. */
function installOldestNode(): string {
  const into = testFolder();
  writeFileSync(join(into, 'package.json'), '{ "private": true }');
  const flags = ['--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts'];
  const { status, err } = runProgram('npm', ['install', ...flags, `${NODE_PACKAGE}@${OLDEST_NODE}`], into);
  if (status !== 0) {
    if (UNREACHABLE.test(err)) return err;
    throw new Error(`npm install ${NODE_PACKAGE}@${OLDEST_NODE} failed: ${err}`);
  }
  const draft = `${OLDEST_PROGRAM}.${process.pid}`;
  mkdirSync(dirname(draft), { recursive: true });
  copyFileSync(join(into, 'node_modules', NODE_PACKAGE, 'bin/node'), draft);
  renameSync(draft, OLDEST_PROGRAM); // an interrupted run must not leave half a program
  return '';
}

const UNREACHABLE = /ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|ETARGET|E404|CERT/;

beforeAll(() => {
  folder = mkdtempSync(join(OPEN_FOLDER, 'noria-package-'));
  copyFileSync(process.execPath, join(folder, 'node'));
  // `npm pack` alone would also check the types, which CI does in a separate step.
  const built = runProgram(process.execPath, ['scripts/build.ts', '--no-check'], process.cwd());
  expect(built.status, built.err).toBe(0);
  const packed = runProgram('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], process.cwd());
  expect(packed.status, packed.err).toBe(0);
  tarball = join(folder, packed.out.trim().split('\n').at(-1) ?? '');
  const app = join(folder, 'app');
  installed = join(app, 'node_modules/noria');
  installPackage(app);
  runProgram('chmod', ['-R', 'a-w,a+rX', folder], folder);
}, LIMIT_MS);

afterAll(() => {
  runProgram('chmod', ['-R', 'u+w', folder], tmpdir());
  rmSync(folder, { recursive: true, force: true });
});

test('package: contains the program, an example and the documents, nothing else', () => {
  const files = runProgram('tar', ['-tzf', tarball], folder).out.trim().split('\n');
  const documents = files.filter((file) => !file.startsWith('package/dist/')).sort();
  expect(documents).toEqual(
    ['CHANGELOG.md', 'LICENSE', 'README.md', 'README.zh-CN.md', 'config.example.yaml', 'package.json'].map(
      (name) => `package/${name}`,
    ),
  );
  expect(files).toContain('package/dist/main.js');
  const others = files.filter((file) => !/\.(js|d\.ts|md|json|yaml|html|css|svg)$|LICENSE$/.test(file));
  expect(others).toEqual([]);
});

test('package: the daemon starts, is healthy and shuts down, as in the image', async () => {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
  const home = testFolder(OPEN_FOLDER);
  const [proxyPort, adminPort] = [await freePort(), await freePort()];
  const file = writeIn(
    home,
    'noria.yaml',
    `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:${proxyPort}", denyTargets: [] }]
admin: { address: "127.0.0.1:${adminPort}" }
state: { dir: "${join(home, 'state')}" }
workers: 2
`,
  );
  const { uid } = UNPRIVILEGED;
  if (uid !== undefined) for (const path of [home, file]) chownSync(path, uid, uid);
  const command = installedCommand();
  const noria = runNoria(['run', '-c', file], { command, cwd: '/', ...UNPRIVILEGED });
  await noria.line('noria is running');
  await noria.line('draw done');
  const health = runNoria(['status', '--admin', `http://127.0.0.1:${adminPort}`], {
    command,
    ...UNPRIVILEGED,
  });
  expect(await health.ended).toEqual([0, null]);
  expect(health.out()).toMatch(/serving: 2 members are usable\n.*, 2 of 2 workers, /);
  noria.child.kill('SIGTERM');
  expect(await noria.ended).toEqual([0, null]);
});

/** The installed program and Node, both of which an unprivileged user can read. */
const installedCommand = () => [join(folder, 'node'), join(installed, 'dist/main.js')] as const;

test('package: names a state folder that noria cannot write to', async () => {
  const home = testFolder(OPEN_FOLDER);
  const locked = join(home, 'locked');
  mkdirSync(locked, { mode: 0o555 });
  const sandbox = await openTestSandbox();
  const text = `
sources:
${sourceLine(sandbox, 'city', 'short-classic')}
listeners: [{ address: "127.0.0.1:0" }]
admin: off
state: { dir: "${join(locked, 'state')}" }
`;
  const file = writeIn(home, 'noria.yaml', text);
  const { uid } = UNPRIVILEGED;
  if (uid !== undefined) for (const path of [home, file]) chownSync(path, uid, uid);
  const noria = runNoria(['run', '-c', file, '--log-level', 'warn'], {
    command: installedCommand(),
    ...UNPRIVILEGED,
  });
  expect(await noria.ended).toEqual([1, null]);
  expect(noria.err()).toMatch(
    /^noria: cannot use the state folder \S+\/locked\/state: .*EACCES.*\n {2}Make state.dir writable for the user that runs noria/,
  );
});

/** Starts the demo and runs the first curl command that it prints. */
async function tryDemo(
  command: readonly [string, ...string[]],
  user: typeof UNPRIVILEGED = {},
): Promise<string> {
  const demo = runNoria(
    ['demo', '--port', '0', '--admin-port', '0', '--target-port', '0', '--members', '2'],
    {
      command,
      cwd: '/',
      env: { PATH: `${folder}:${process.env['PATH']}` },
      ...user,
    },
  );
  await until('the demo has printed its commands', () => {
    if (demo.child.exitCode !== null) throw new Error(`the demo ended: ${demo.err()}`);
    return demo.out().includes('Ctrl-C');
  });
  const words = / {2}curl (.*)$/m.exec(demo.out())?.[1]?.split(' ') ?? [];
  const { out } = await curl(...words);
  demo.child.kill('SIGINT');
  expect(await demo.ended, demo.err()).toEqual([0, null]);
  return out;
}

test.skipIf(!hasCommand('curl'))('package: the demo runs by the name of the installed command', async () => {
  expect(await tryDemo([join(folder, 'app/node_modules/.bin/noria')], UNPRIVILEGED)).toMatch(/^127\./);
});

test.skipIf(!hasCommand('curl'))(
  `package: build and source run on Node ${OLDEST_NODE}, the oldest version in engines`,
  { timeout: LIMIT_MS },
  async (context) => {
    const { engines } = JSON.parse(readFileSync('package.json', 'utf8'));
    expect(engines.node).toMatch(new RegExp(`^\\^${OLDEST_NODE.replaceAll('.', '\\.')} `));
    const missing = existsSync(OLDEST_PROGRAM) ? '' : installOldestNode();
    context.skip(missing !== '', `no Node ${OLDEST_NODE}: ${missing}`);
    expect(runProgram(OLDEST_PROGRAM, ['--version'], folder).out.trim()).toBe(`v${OLDEST_NODE}`);
    expect(await tryDemo([OLDEST_PROGRAM, join(installed, 'dist/main.js')])).toMatch(/^127\./);
    expect(await tryDemo([OLDEST_PROGRAM, join(process.cwd(), 'src/main.ts')])).toMatch(/^127\./);
  },
);

/** The packages that the declarations import. */
function packagesOfDeclarations(): string[] {
  const files = readdirSync(join(installed, 'dist'), { recursive: true, encoding: 'utf8' });
  const texts = files
    .filter((file) => file.endsWith('.d.ts'))
    .map((file) => readFileSync(join(installed, 'dist', file), 'utf8'));
  const specifiers = texts.flatMap((text) => [...text.matchAll(/(?:from |import\()["']([^."'][^"']*)["']/g)]);
  const names = specifiers.map(([, specifier = '']) => /^(@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? '');
  const packages = [...new Set(names.filter((name) => !name.startsWith('node:')))];
  expect(packages.length, 'packages').toBeGreaterThan(2);
  return packages;
}

const PROGRAM = `
import { type Noria, startNoria } from 'noria';

const yaml = (port: number) => \`
service: { baseUrl: "http://127.0.0.1:1" }
sources: [{ name: city, product: short-classic, instance: "1", password: "12345678" }]
listeners: [{ address: "127.0.0.1:\${port}" }]
admin: off
state: off
\`;
const noria: Noria = await startNoria({ config: yaml(0) });
const [address = ''] = noria.addresses.listeners;
const restartKeys: readonly string[] = await noria.reload(yaml(0));
// @ts-expect-error: the types know every key, so an unknown one is an error
noria.control.status().unknown;
console.log(/^127\\.0\\.0\\.1:\\d+$/.test(address), noria.control.status().ready, restartKeys.length);
await noria.close();
`;

test('package: another program embeds noria, with its types', () => {
  expect(packagesOfDeclarations().filter((name) => !existsSync(join(installed, '..', name)))).toEqual([]);
  const consumer = testFolder();
  const program = writeIn(consumer, 'program.mts', PROGRAM);
  symlinkSync(join(folder, 'app/node_modules'), join(consumer, 'node_modules'));
  const types = ['--typeRoots', join(process.cwd(), 'node_modules/@types'), '--types', 'node'];
  // Checking the declarations of all dependencies would take six times as long.
  const checks = ['--noEmit', '--strict', '--skipLibCheck'];
  const flags = [...checks, '--module', 'nodenext', '--target', 'es2024', ...types];
  const compiler = join(process.cwd(), 'node_modules/.bin/tsc');
  expect(runProgram(compiler, [...flags, program], consumer)).toMatchObject({ status: 0, out: '' });
  expect(runProgram(process.execPath, [program], consumer)).toMatchObject({
    status: 0,
    out: 'true true 0\n',
  });
});
