/** Archives that contain nothing of the machine that writes them: no names of users, no times, entries in the given order. */

/** The time of every file: 2026-01-01. tar warns about the year 1970. */
export const EPOCH_SECONDS = 1_767_225_600;
const BLOCK = 512;

export interface Entry {
  /** Without a leading slash. A folder ends with a slash. */
  readonly path: string;
  readonly mode: number;
  readonly bytes?: Buffer;
  /** Where a symbolic link points. */
  readonly link?: string;
  /** The user and the group; default: root. */
  readonly owner?: number;
}

/** Returns a tar archive (POSIX.1-1988, ustar). Parent folders are added. */
export function tar(entries: readonly Entry[]): Buffer {
  const parts = withParents(entries).flatMap((entry) => {
    const { bytes = Buffer.alloc(0) } = entry;
    return [header(entry, bytes.length), bytes, Buffer.alloc(padding(bytes.length))];
  });
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

function withParents(entries: readonly Entry[]): Entry[] {
  const all = new Map<string, Entry>();
  for (const entry of entries) {
    const names = entry.path.split('/').slice(0, entry.path.endsWith('/') ? -2 : -1);
    names.forEach((_, at) => {
      const path = `${names.slice(0, at + 1).join('/')}/`;
      if (!all.has(path)) all.set(path, { path, mode: 0o755 });
    });
    all.set(entry.path, entry);
  }
  return [...all.values()].sort((a, b) => (a.path < b.path ? -1 : 1));
}

function header({ path, mode, link, owner = 0 }: Entry, size: number): Buffer {
  if (Buffer.byteLength(path) > 100) throw new RangeError(`the path is too long for ustar: ${path}`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, length: number) =>
    block.write(value.toString(8).padStart(length - 1, '0'), at, 'latin1');
  block.write(path, 0);
  octal(mode, 100, 8);
  octal(owner, 108, 8);
  octal(owner, 116, 8);
  octal(size, 124, 12);
  octal(EPOCH_SECONDS, 136, 12);
  block.write(' '.repeat(8), 148); // the checksum counts as spaces
  block.write(link === undefined ? (path.endsWith('/') ? '5' : '0') : '2', 156);
  block.write(link ?? '', 157);
  block.write('ustar\0' + '00', 257, 'latin1');
  octal(
    block.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return block;
}

function padding(length: number): number {
  return (BLOCK - (length % BLOCK)) % BLOCK;
}

/** Returns an archive of ar(5), the outer format of a Debian package. */
export function ar(members: readonly (readonly [name: string, bytes: Buffer])[]): Buffer {
  const parts = members.flatMap(([name, bytes]) => [
    Buffer.from(
      `${name.padEnd(16)}${String(EPOCH_SECONDS).padEnd(12)}${'0'.padEnd(6)}${'0'.padEnd(6)}${'100644'.padEnd(8)}${String(bytes.length).padEnd(10)}\`\n`,
    ),
    bytes,
    Buffer.from(bytes.length % 2 === 1 ? '\n' : ''),
  ]);
  return Buffer.concat([Buffer.from('!<arch>\n'), ...parts]);
}
