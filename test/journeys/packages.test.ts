/**
 * The packages of `npm run package` work on a machine without Node: they are built once, and run in an empty environment. All other
 * journeys run on the executable, too, if `NORIA_TEST_PROGRAM` names it.
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readVersion } from '../../src/core/version.ts';
import { getThrough } from '../support/exit-through.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { OPEN_FOLDER, runNoria, runProgram, testFolder, writeIn } from './noria-process.ts';

interface Platform {
  readonly platform: { readonly architecture: string };
}

const VERSION = readVersion();
/** The processes of a busy machine may leave a tenth of a core. */
const BUILD_LIMIT_MS = 1_200_000;
const WITH_BUILD_MS = BUILD_LIMIT_MS + 60_000;
/** Runs a command as root, for an ordinary user as the root of a new user namespace. */
const AS_ROOT = process.getuid?.() === 0 ? [] : ['unshare', '--user', '--map-root-user'];
const CAN_BE_ROOT =
  AS_ROOT.length === 0 || runProgram('unshare', [...AS_ROOT.slice(1), 'true'], '/').status === 0;
const EMPTY = { env: { PATH: '/nonexistent' }, cwd: '/' };

let out = '';

beforeAll(() => {
  out = mkdtempSync(join(tmpdir(), 'noria-packages-'));
  build(out);
}, WITH_BUILD_MS);
afterAll(() => rmSync(out, { recursive: true, force: true }));

function build(folder: string): void {
  const args = ['scripts/package/main.ts', '--out', folder];
  const { status, err } = runProgram(process.execPath, args, '.', BUILD_LIMIT_MS);
  expect(status, err).toBe(0);
}

const executable = (): readonly [string] => [join(out, `noria-${VERSION}-linux-${process.arch}`)];

function fetchText(url: string): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    get(url, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    }).on('error', reject);
  });
}

describe.skipIf(process.platform !== 'linux')('packages', () => {
  test(
    'package: SHA256SUMS has every file, and a second build writes the same bytes',
    () => {
      const again = testFolder();
      build(again);
      const sums = readFileSync(join(out, 'SHA256SUMS'), 'utf8');
      expect(readFileSync(join(again, 'SHA256SUMS'), 'utf8')).toBe(sums);
      const named = sums
        .trim()
        .split('\n')
        .map((line) => line.split('  ')[1]);
      const files = readdirSync(out, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && entry.name !== 'SHA256SUMS')
        .map((entry) => join(entry.parentPath, entry.name).slice(out.length + 1));
      expect(named).toEqual(files.sort());
      const [file = ''] = executable();
      const sum = createHash('sha256').update(readFileSync(file)).digest('hex');
      expect(sums).toContain(`${sum}  noria-${VERSION}-linux-${process.arch}\n`);
    },
    WITH_BUILD_MS,
  );

  test('executable: contains no path of the machine that built it', () => {
    const bytes = readFileSync(executable()[0]);
    expect(bytes.includes('/src/daemon/daemon.ts')).toBe(false);
    expect(bytes.includes(`${process.cwd()}/`)).toBe(false);
    expect(bytes.includes(out)).toBe(false);
  });

  test('executable: without Node and HOME, prints its version, refuses an unknown command, and asks a daemon', async () => {
    const version = runNoria(['--version'], { command: executable(), ...EMPTY });
    expect(await version.ended).toEqual([0, null]);
    expect([version.out(), version.err()]).toEqual([`${VERSION}\n`, '']);
    const unknown = runNoria(['rnu'], { command: executable(), ...EMPTY });
    expect(await unknown.ended).toEqual([2, null]);
    expect(unknown.err()).toContain('Did you mean run?');
    const status = runNoria(['status', '--admin', `127.0.0.1:${await freePort()}`], {
      command: executable(),
      ...EMPTY,
    });
    expect(await status.ended).toEqual([3, null]);
    expect(status.err()).toContain('nothing listens there');
  });

  test('executable: the demo serves requests, the dashboard and the documentation', async () => {
    const ports = ['--port', '0', '--admin-port', '0', '--target-port', '0', '--browser-port', '0'];
    const demo = runNoria(['demo', ...ports, '--members', '2'], { command: executable(), ...EMPTY });
    await until('the demo has printed its commands', () => {
      if (demo.child.exitCode !== null) throw new Error(`the demo ended: ${demo.err()}`);
      return demo.out().includes('Ctrl-C');
    });
    const proxy = / on (\S+) \(HTTP/.exec(demo.out())?.[1] ?? '';
    const target = /target\s+(\S+)/.exec(demo.out())?.[1] ?? '';
    const page = /dashboard\s+(\S+)/.exec(demo.out())?.[1] ?? '';
    expect(await getThrough(proxy, target)).toMatch(/^200 127\./);
    expect(await fetchText(page)).toMatchObject({ status: 200, text: expect.stringContaining('<title>') });
    const paths = ['page/main.js', 'page/uplot.js', 'docs/README.md', 'docs/zh-CN/README.md'];
    for (const path of paths) expect((await fetchText(page + path)).status, path).toBe(200);
    demo.child.kill('SIGINT');
    expect(await demo.ended, demo.err()).toEqual([0, null]);
  });

  async function runOnSandbox(settings: string) {
    const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
    const home = testFolder();
    const port = await freePort();
    const text = `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:${port}", denyTargets: [] }]
state: { dir: "${join(home, 'state')}" }
log: { format: json }
${settings}
`;
    const file = writeIn(home, 'noria.yaml', text);
    const noria = runNoria(['run', '-c', file], { command: executable(), ...EMPTY });
    await noria.line('draw done');
    const end = async () => {
      noria.child.kill('SIGTERM');
      expect(await noria.ended, noria.err()).toEqual([0, null]);
    };
    return { noria, end, get: () => getThrough(`127.0.0.1:${port}`, `${sandbox.targetUrl}/ip`) };
  }

  test('executable: workers run from it', async () => {
    const { end, get } = await runOnSandbox('admin: off\nworkers: 2');
    expect(await get()).toMatch(/^200 127\./);
    await end();
  });

  test('executable: without clients, at most 36 MiB are memory of its own', async () => {
    const { noria, end } = await runOnSandbox('admin: { address: "127.0.0.1:0" }');
    await noria.line('noria is running'); // the garbage of the start is collected
    const [, kib] =
      /^Anonymous: +(\d+) kB$/m.exec(readFileSync(`/proc/${noria.child.pid}/smaps_rollup`, 'utf8')) ?? [];
    expect(Number(kib) / 1_024).toBeLessThan(36);
    await end();
  });

  test('executable: is for the machine that its name says', () => {
    const machines: Record<string, number> = { x64: 0x3e, arm64: 0xb7 }; // e_machine of ELF
    const files = readdirSync(out).filter((name) => name.startsWith(`noria-${VERSION}-linux-`));
    expect(files).toContain(`noria-${VERSION}-linux-${process.arch}`);
    for (const name of files) {
      const bytes = readFileSync(join(out, name));
      expect(bytes.readUInt16LE(18), name).toBe(machines[name.slice(name.lastIndexOf('-') + 1)]);
    }
  });

  const debName = () => readdirSync(out).find((name) => name.endsWith('.deb')) ?? 'no deb';
  const dpkg = (...args: readonly string[]) => runProgram('dpkg', args, out);
  const unpacked = () => {
    const root = testFolder();
    const { status, err } = dpkg('--extract', debName(), root);
    expect(status, err).toBe(0);
    return root;
  };

  describe.skipIf(!hasCommand('dpkg'))('deb', () => {
    test('deb: its program runs, its configuration is valid, its completions know every command', async () => {
      const root = unpacked();
      const command = [join(root, 'usr/bin/noria')] as const;
      const secrets = testFolder();
      writeIn(secrets, 'secrets_city', 'hunter2-hunter2');
      const check = runNoria(['check', '-c', join(root, 'etc/noria/noria.yaml')], {
        command,
        env: { CREDENTIALS_DIRECTORY: secrets },
        cwd: '/',
      });
      expect(await check.ended, check.err()).toEqual([0, null]);
      expect(check.out()).toContain('dir: /var/lib/noria');
      const pages = [
        'bash-completion/completions/noria',
        'zsh/vendor-completions/_noria',
        'man/man1/noria.1.gz',
      ];
      for (const page of pages) {
        const bytes = readFileSync(join(root, 'usr/share', page));
        const text = (page.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
        for (const name of ['run', 'check', 'status', 'simulate', 'link']) expect(text, page).toContain(name);
      }
    });

    test.skipIf(!hasCommand('man'))('deb: the manual page has no error', () => {
      const page = join(unpacked(), 'usr/share/man/man1/noria.1.gz');
      const {
        status,
        out: text,
        err,
      } = runProgram(
        'env',
        ['LC_ALL=C.UTF-8', 'man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', page],
        '/',
      );
      expect({ status, err }).toEqual({ status: 0, err: '' });
      expect(text.replace(/.[\b]/g, '')).toMatch(/noria extract source[\s\S]*EXIT STATUS/);
    });

    test.skipIf(!hasCommand('systemd-analyze'))(
      'deb: systemd-analyze verifies its units without a message',
      () => {
        const folder = join(unpacked(), 'usr/lib/systemd/system');
        const units = ['noria.service', 'noria.socket'].map((name) => join(folder, name));
        expect(readFileSync(units[0] ?? '', 'utf8')).toContain(
          'ExecStart=/usr/bin/noria run -c /etc/noria/noria.yaml\n',
        );
        const { err } = runProgram('systemd-analyze', ['verify', '--man=no', ...units], '/');
        // the program is installed in the unpacked package only
        expect(err.split('\n').filter((line) => line !== '' && !/is not executable/.test(line))).toEqual([]);
      },
    );

    test.skipIf(!CAN_BE_ROOT)(
      'deb: dpkg installs it, a removal keeps the configuration, a purge leaves nothing',
      () => {
        const root = testFolder();
        mkdirSync(join(root, 'var/lib/dpkg/info'), { recursive: true });
        mkdirSync(join(root, 'var/lib/dpkg/updates'));
        writeIn(join(root, 'var/lib/dpkg'), 'status', '');
        const flags = [`--root=${root}`, '--force-depends', '--force-script-chrootless'];
        const run = (...args: readonly string[]) => {
          const [program = '', ...before] = [...AS_ROOT, 'dpkg', ...flags];
          const { status, err } = runProgram(program, [...before, ...args], out);
          expect(status, err).toBe(0);
        };
        run('--install', debName());
        const has = (path: string) => existsSync(join(root, path));
        const seen = () =>
          ['usr/bin/noria', 'etc/noria/noria.yaml', 'usr/share/man/man1/noria.1.gz'].map(has);
        expect(seen()).toEqual([true, true, true]);
        expect(statSync(join(root, 'etc/noria/secrets')).mode & 0o777).toBe(0o700);
        run('--remove', 'noria');
        expect(seen()).toEqual([false, true, false]);
        run('--purge', 'noria');
        expect(has('etc/noria')).toBe(false);
      },
    );
  });

  /** The JSON of the image: its manifest and configuration for this machine. */
  function readImage() {
    const blob = (digest: string) => join(out, 'oci/blobs', digest.replace(':', '/'));
    const json = (digest: string) => JSON.parse(readFileSync(blob(digest), 'utf8'));
    const { manifests } = JSON.parse(readFileSync(join(out, 'oci/index.json'), 'utf8'));
    const index = json(manifests[0].digest);
    const machine = process.arch === 'x64' ? 'amd64' : process.arch;
    const manifest = json(
      index.manifests.find(({ platform }: Platform) => platform.architecture === machine).digest,
    );
    return { blob, index, manifest, image: json(manifest.config.digest) };
  }

  test('image: every blob of the layout has the size and the digest that name it', () => {
    const { blob, index, manifest, image } = readImage();
    const descriptors = [...index.manifests, manifest.config, ...manifest.layers];
    expect(descriptors.length).toBeGreaterThan(3);
    for (const { digest, size } of descriptors) {
      const bytes = readFileSync(blob(digest));
      const sum = createHash('sha256').update(bytes).digest('hex');
      expect([`sha256:${sum}`, bytes.length]).toEqual([digest, size]);
    }
    const sums = manifest.layers.map(({ digest }: { digest: string }) =>
      createHash('sha256')
        .update(gunzipSync(readFileSync(blob(digest))))
        .digest('hex'),
    );
    expect(image.rootfs.diff_ids).toEqual(sums.map((sum: string) => `sha256:${sum}`));
  });

  test('image: says what the Dockerfile says', () => {
    const { config } = readImage().image;
    const dockerfile = readFileSync('Dockerfile', 'utf8').replaceAll(/\\\n\s*/g, ' ');
    const last = (name: string) =>
      [...dockerfile.matchAll(new RegExp(`^${name} (.*)$`, 'gm'))].at(-1)?.[1] ?? `no ${name}`;
    expect(config.User).toBe(last('USER'));
    expect(config.Entrypoint).toEqual(JSON.parse(last('ENTRYPOINT')));
    expect(config.Cmd).toEqual(JSON.parse(last('CMD')));
    expect(Object.keys(config.Volumes)).toEqual(JSON.parse(last('VOLUME')));
    expect(Object.keys(config.ExposedPorts)).toEqual(
      last('EXPOSE')
        .split(' ')
        .map((port) => `${port}/tcp`),
    );
    expect(config.StopSignal).toBe(last('STOPSIGNAL'));
    expect(config.Env).toEqual(expect.arrayContaining(last('ENV').trim().split(/\s+/)));
    const [, interval, timeout, start, retries] =
      /--interval=(\d+)s --timeout=(\d+)s --start-period=(\d+)s --retries=(\d+)/.exec(last('HEALTHCHECK')) ??
      [];
    const { Interval, Timeout, StartPeriod, Retries, Test } = config.Healthcheck;
    expect([Interval, Timeout, StartPeriod].map((value) => value / 1e9)).toEqual(
      [interval, timeout, start].map(Number),
    );
    expect([Retries, Test]).toEqual([Number(retries), ['CMD', 'noria', 'status']]);
    const labels = Object.entries(config.Labels).map(([key, value]) => `${key}="${value}"`);
    for (const label of labels) expect(dockerfile).toContain(label);
  });

  test.skipIf(!CAN_BE_ROOT || !hasCommand('pgrep'))(
    'image: runs as PID 1 on a read-only root with nothing but its own files, and ends on SIGTERM',
    async () => {
      const { blob, manifest } = readImage();
      const root = testFolder(OPEN_FOLDER);
      const isRoot = process.getuid?.() === 0;
      for (const { digest } of manifest.layers) {
        const { status, err } = runProgram('tar', ['-xzf', blob(digest), '-C', root], '/');
        expect(status, err).toBe(0);
      }
      chmodSync(root, 0o755);
      expect(statSync(join(root, 'var/lib/noria')).mode & 0o777).toBe(0o700);
      const user = isRoot ? ['--userspec=65532:65532'] : [];
      const script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot "$@"';
      const [program = '', ...before] = [
        ...(isRoot ? ['unshare'] : AS_ROOT),
        '--mount',
        '--pid',
        '--fork',
        '--kill-child',
      ];
      const inside = ['sh', '-c', script, root, ...user, root, '/usr/bin/noria'];
      const ports = ['--port', '0', '--admin-port', '0', '--target-port', '0', '--browser-port', '0'];
      const noria = runNoria(['demo', ...ports, '--members', '2'], {
        command: [program, ...before, ...inside],
        env: { PATH: process.env['PATH'] ?? '' },
        cwd: '/',
      });
      await until('the demo has printed its commands', () => {
        if (noria.child.exitCode !== null) throw new Error(`the demo ended: ${noria.err()}`);
        return noria.out().includes('Ctrl-C');
      });
      const [, proxy = ''] = / on (\S+) \(HTTP/.exec(noria.out()) ?? [];
      const [, target = ''] = /target\s+(\S+)/.exec(noria.out()) ?? [];
      expect(await getThrough(proxy, target)).toMatch(/^200 127\./);
      process.kill(Number(runProgram('pgrep', ['-P', String(noria.child.pid)], '/').out.trim()), 'SIGTERM');
      expect(await noria.ended, noria.err()).toEqual([0, null]);
    },
  );

  test('sbom: lists Node and exactly the packages that users install, each dependency resolved', () => {
    const bom = JSON.parse(readFileSync(join(out, 'sbom.cdx.json'), 'utf8'));
    expect([bom.bomFormat, bom.specVersion]).toEqual(['CycloneDX', '1.6']);
    const { status, out: listed } = runProgram(
      'npm',
      ['ls', '--all', '--omit=dev', '--parseable', '--package-lock-only', '--long'],
      '.',
    );
    expect(status).toBe(0);
    const installed = listed
      .trim()
      .split('\n')
      .slice(1)
      .map((line) => line.slice(line.lastIndexOf(':') + 1));
    const components: { name: string; version: string; 'bom-ref': string }[] = bom.components;
    const names = components.map(({ name, version }) => `${name}@${version}`);
    expect(installed.length).toBeGreaterThan(20);
    expect(names.sort()).toEqual([...new Set([...installed, `node@${process.versions.node}`])].sort());
    const known = new Set(components.map((component) => component['bom-ref']));
    const dependencies: { dependsOn: string[] }[] = bom.dependencies;
    expect(dependencies.flatMap(({ dependsOn }) => dependsOn).filter((ref) => !known.has(ref))).toEqual([]);
  });

  test.each(['README.md', 'README.zh-CN.md', 'docs/install.md', 'docs/zh-CN/install.md'])(
    '%s: the files that it names were built, and the commands for the single file work',
    async (page) => {
      const text = readFileSync(page, 'utf8');
      const named = [...text.matchAll(/noria[-_]\d+\.\d+\.\d+[-_](?:linux-)?(x64|arm64|amd64)(?:\.deb)?/g)];
      const names = new Set(named.map(([name]) => name).filter((name) => !name.includes('arm64')));
      expect([...names].sort()).toEqual([`noria-${VERSION}-linux-x64`, `noria_${VERSION}_amd64.deb`]);
      const built = readdirSync(out);
      if (process.arch !== 'x64') return;
      expect([...names].filter((name) => !built.includes(name))).toEqual([]);
      const [, first = '', second = ''] = /(chmod \+x \S+)(?: && |\n)(\.\/noria\S+ demo)/.exec(text) ?? [];
      const demo = runNoria(
        ['-c', `${first} && exec ${second} --port 0 --admin-port 0 --target-port 0 --browser-port 0`],
        {
          command: ['sh'],
          cwd: out,
        },
      );
      await until('the demo has printed its commands', () => {
        if (demo.child.exitCode !== null) throw new Error(`the demo ended: ${demo.err()}`);
        return demo.out().includes('Ctrl-C');
      });
      demo.child.kill('SIGTERM');
      expect(await demo.ended, demo.err()).toEqual([0, null]);
    },
  );
});
