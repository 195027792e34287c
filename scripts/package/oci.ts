/**
 * The image, as an OCI image layout (https://github.com/opencontainers/image-spec, v1.1), written without a daemon: the executable and
 * the C and C++ libraries that it needs, no shell and no other program. It says what the Dockerfile says.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { type Entry, EPOCH_SECONDS, tar } from './archive.ts';
import { debianName } from './deb.ts';

const USER = 65_532;
const CREATED = new Date(EPOCH_SECONDS * 1_000).toISOString();
const SECOND_NS = 1_000_000_000;

/** How an engine runs the image. */
const CONFIG = {
  User: `${USER}:${USER}`,
  Env: ['PATH=/usr/bin', 'NODE_ENV=production', 'NO_COLOR=1'],
  Entrypoint: ['noria'],
  Cmd: ['run', '-c', '/etc/noria/noria.yaml'],
  ExposedPorts: { '8888/tcp': {}, '8889/tcp': {} },
  Volumes: { '/var/lib/noria': {} },
  WorkingDir: '/',
  StopSignal: 'SIGTERM',
  Labels: {
    'org.opencontainers.image.title': 'noria',
    'org.opencontainers.image.description': 'A local rotating forward proxy over short-lived proxy IPs',
    'org.opencontainers.image.licenses': 'MIT',
  },
  // Docker's extension of the specification
  Healthcheck: {
    Test: ['CMD', 'noria', 'status'],
    Interval: 30 * SECOND_NS,
    Timeout: 5 * SECOND_NS,
    StartPeriod: 10 * SECOND_NS,
    Retries: 3,
  },
};

/** The shared libraries that Node needs on arm64, as `ldd` names them on x64. */
const ARM64 = {
  folder: '/usr/aarch64-linux-gnu/lib',
  loader: 'ld-linux-aarch64.so.1',
  names: ['libdl.so.2', 'libstdc++.so.6', 'libm.so.6', 'libgcc_s.so.1', 'libpthread.so.0', 'libc.so.6'],
};

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

/** An image layout in a folder. */
export class ImageLayout {
  readonly #folder: string;
  readonly #manifests: object[] = [];

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(join(folder, 'blobs/sha256'), { recursive: true });
  }

  /** Adds the image of one architecture. @returns an empty string, or why that is not possible on this machine. */
  add(arch: string, executable: Buffer): string {
    const libraries = arch === process.arch ? ownLibraries() : arm64Libraries();
    if (libraries === undefined)
      return `its libraries are not here: apt-get install libc6-arm64-cross libstdc++6-arm64-cross`;
    const layers = [
      [...SYSTEM, ...libraries],
      [{ path: 'usr/bin/noria', mode: 0o755, bytes: executable }],
    ].map((entries) => {
      const archive = tar(entries);
      const descriptor = this.#blob('application/vnd.oci.image.layer.v1.tar+gzip', gzipSync(archive));
      return { descriptor, diffId: digestOf(archive) };
    });
    const platform = { architecture: debianName(arch), os: 'linux' };
    const config = this.#blob('application/vnd.oci.image.config.v1+json', {
      created: CREATED,
      ...platform,
      config: CONFIG,
      rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
    });
    const manifest = this.#blob('application/vnd.oci.image.manifest.v1+json', {
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config,
      layers: layers.map(({ descriptor }) => descriptor),
    });
    this.#manifests.push({ ...manifest, platform });
    return '';
  }

  close(version: string): void {
    const index = this.#blob('application/vnd.oci.image.index.v1+json', {
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests: this.#manifests,
    });
    const named = { ...index, annotations: { 'org.opencontainers.image.ref.name': version } };
    this.#write('index.json', JSON.stringify({ schemaVersion: 2, manifests: [named] }));
    this.#write('oci-layout', JSON.stringify({ imageLayoutVersion: '1.0.0' }));
  }

  #blob(mediaType: string, content: Buffer | object): Descriptor {
    const bytes = Buffer.isBuffer(content) ? content : Buffer.from(JSON.stringify(content));
    const digest = digestOf(bytes);
    this.#write(`blobs/sha256/${digest.slice('sha256:'.length)}`, bytes);
    return { mediaType, digest, size: bytes.length };
  }

  #write(name: string, content: Buffer | string): void {
    writeFileSync(join(this.#folder, name), content);
  }
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** What a program expects besides its libraries. The state belongs to noria. */
const SYSTEM: readonly Entry[] = [
  file('etc/passwd', `root:x:0:0:root:/:\nnoria:x:${USER}:${USER}:noria:/var/lib/noria:\n`),
  file('etc/group', `root:x:0:\nnoria:x:${USER}:\n`),
  file('etc/nsswitch.conf', 'hosts: files dns\n'),
  { path: 'etc/noria/', mode: 0o755 },
  { path: 'tmp/', mode: 0o1777 },
  { path: 'var/lib/noria/', mode: 0o700, owner: USER },
];

function file(path: string, text: string): Entry {
  return { path, mode: 0o644, bytes: Buffer.from(text) };
}

function library(path: string, from: string): Entry {
  return { path: path.slice(1), mode: 0o755, bytes: readFileSync(from) };
}

/** The libraries of this machine, under the paths under which its loader finds them. */
function ownLibraries(): Entry[] {
  const output = execFileSync('ldd', [process.execPath], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'] },
  });
  const paths = [...output.matchAll(/(?:=> )?(\/\S+) \(0x/g)].map(([, path = '']) => path);
  if (!paths.some((path) => basename(path) === 'libc.so.6'))
    throw new Error(`ldd names no C library:\n${output}`);
  return paths.map((path) => library(path, path));
}

function arm64Libraries(): Entry[] | undefined {
  const { folder, loader, names } = ARM64;
  if (![...names, loader].every((name) => existsSync(join(folder, name)))) return undefined;
  return [
    library(`/lib/${loader}`, join(folder, loader)),
    ...names.map((name) => library(`/lib/aarch64-linux-gnu/${name}`, join(folder, name))),
  ];
}
