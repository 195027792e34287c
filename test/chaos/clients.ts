/**
 * Well-behaved clients: each makes one exchange through noria and checks every byte of the answer.
 *
 * An exchange fails when noria refuses it, when it ends early, or when it takes too long. Wrong bytes are worse than a failure:
 * nothing can excuse them.
 */
import { connect, type Socket } from 'node:net';
import { type Random, randomBelow } from '../../src/core/random.ts';
import { bytesOf, digestOf, type Origin } from './origin.ts';

const HOST = '127.0.0.1';

export interface ClientOptions {
  /** The port of noria's listener with users. */
  readonly port: number;
  /** The port of its listener without users, for SOCKS4, which carries no password. */
  readonly openPort: number;
  readonly origin: Pick<Origin, 'rawPort' | 'httpPort'>;
  readonly username: string;
  readonly password: string;
  readonly random: Random;
  /** The client gives up after this time. */
  readonly limitMs: () => number;
  /** Whether a member of the source that clients ask for has this exit. */
  readonly isOfSource: (exit: string) => boolean;
}

/** The source that clients with routing options ask for. */
export const ASKED_SOURCE = 'socks';

/**
 * `late`: no end within the limit. `refused`: an answer of noria, such as `503 pool-empty`. `cut`: ended before the last byte.
 * `expired`: noria used a member whose life was over. `broken-promise`: the exit is not what a session, a ban or an option promises.
 */
export type Outcome =
  | { readonly kind: 'ok' }
  | {
      readonly kind:
        | 'refused'
        | 'cut'
        | 'late'
        | 'unreachable'
        | 'wrong-bytes'
        | 'expired'
        | 'broken-promise';
      readonly detail: string;
    };

type Exchange = (tap: Tap, options: ClientOptions) => Promise<Outcome>;

export const CLIENT_KINDS = [
  'connect-echo',
  'socks5-echo',
  'socks4a-echo',
  'half-close',
  'slow-reader',
  'download',
  'upload',
  'keep-alive',
  'upgrade',
  'session',
  'ban',
  'routing',
] as const;

export type ClientKind = (typeof CLIENT_KINDS)[number];

const EXCHANGES: Readonly<Record<ClientKind, Exchange>> = {
  'connect-echo': (tap, options) => echoThrough(tap, options, openConnect),
  'socks5-echo': (tap, options) => echoThrough(tap, options, openSocks5),
  'socks4a-echo': (tap, options) => echoThrough(tap, options, openSocks4a),
  'half-close': halfClose,
  'slow-reader': slowReader,
  download,
  upload,
  'keep-alive': keepAlive,
  upgrade,
  session,
  ban,
  routing,
};

const OK: Outcome = { kind: 'ok' };

/** Runs one exchange. Never rejects. */
export async function exchange(kind: ClientKind, options: ClientOptions): Promise<Outcome> {
  const tap = new Tap(kind === 'socks4a-echo' ? options.openPort : options.port);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Outcome>((resolve) => {
    const giveUpAt = (dueAt: number) => {
      timer = setTimeout(
        () => {
          const limitAt = tap.answeredAt + options.limitMs();
          if (limitAt > dueAt) giveUpAt(limitAt);
          else resolve({ kind: 'late', detail: `nothing after ${Math.round(limitAt - tap.answeredAt)} ms` });
        },
        Math.max(0, dueAt - performance.now()),
      );
    };
    giveUpAt(tap.answeredAt + options.limitMs());
  });
  try {
    return await Promise.race([EXCHANGES[kind](tap, options), late]);
  } catch (error) {
    if (error instanceof Expired) return { kind: 'expired', detail: error.message };
    // What these promise concerns the exit of an answer. noria may refuse them: a fixed session has one member, a new host no evidence.
    if (error instanceof Refused && (kind === 'session' || kind === 'ban')) return OK;
    if (error instanceof Refused) return { kind: 'refused', detail: error.message };
    if (error instanceof Ended) {
      return { kind: tap.connected ? 'cut' : 'unreachable', detail: error.message };
    }
    throw error;
  } finally {
    clearTimeout(timer);
    tap.close();
  }
}

class Ended extends Error {}

class Refused extends Error {}

class Expired extends Error {}

/** A client's socket, read on demand. */
class Tap {
  readonly socket: Socket;
  connected = false;
  /** When it was opened, or the last head arrived: noria's deadline is that of a request, not of a connection. */
  answeredAt = performance.now();
  #chunks: Buffer[] = [];
  #ended = false;
  #wake: (() => void) | undefined;

  constructor(port: number) {
    this.socket = connect({ port, host: HOST, allowHalfOpen: true });
    this.socket.on('connect', () => {
      this.connected = true;
    });
    this.socket.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk);
      this.#wake?.();
    });
    const end = () => {
      this.#ended = true;
      this.#wake?.();
    };
    this.socket.on('end', end).on('close', end).on('error', end); // ignored: the reader sees the end
  }

  write(bytes: Buffer | string): void {
    this.socket.write(bytes);
  }

  /** @throws Ended if the connection ends before `count` bytes have arrived. */
  async read(count: number): Promise<Buffer> {
    while (this.#size < count) await this.#more(`after ${this.#size} of ${count} bytes`);
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [all.subarray(count)];
    return all.subarray(0, count);
  }

  /** Returns an HTTP head as text, with its empty line. */
  async readHead(): Promise<string> {
    for (;;) {
      const all = Buffer.concat(this.#chunks);
      const end = all.indexOf('\r\n\r\n');
      if (end >= 0) {
        this.#chunks = [all.subarray(end + 4)];
        this.answeredAt = performance.now();
        return all.subarray(0, end + 4).toString('latin1');
      }
      await this.#more('inside a head');
    }
  }

  async readToEnd(): Promise<Buffer> {
    while (!this.#ended) await this.#wait();
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [];
    return all;
  }

  close(): void {
    this.socket.destroy();
  }

  get #size(): number {
    return this.#chunks.reduce((sum, { length }) => sum + length, 0);
  }

  async #more(where: string): Promise<void> {
    if (this.#ended) throw new Ended(`ended ${where}`);
    const size = this.#size;
    await this.#wait();
    if (this.#ended && this.#size === size) throw new Ended(`ended ${where}`);
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }
}

type OpenTunnel = (tap: Tap, options: ClientOptions) => Promise<void>;

async function openConnect(tap: Tap, options: ClientOptions): Promise<void> {
  const target = `${HOST}:${options.origin.rawPort}`;
  tap.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n${proxyLogin(options)}\r\n`);
  expectStatus(await tap.readHead(), 200);
}

async function openSocks5(tap: Tap, { origin, username, password }: ClientOptions): Promise<void> {
  tap.write(Buffer.from([5, 1, 2]));
  await tap.read(2);
  const login = [username, password].map((text) => Buffer.from(text));
  tap.write(
    Buffer.concat([Buffer.from([1]), ...login.flatMap((text) => [Buffer.from([text.length]), text])]),
  );
  if ((await tap.read(2))[1] !== 0) throw new Refused('SOCKS5 login refused');
  tap.write(Buffer.from([5, 1, 0, 1, 127, 0, 0, 1, origin.rawPort >> 8, origin.rawPort & 255]));
  const code = (await tap.read(10))[1];
  if (code !== 0) throw new Refused(`SOCKS5 reply ${code}`);
}

async function openSocks4a(tap: Tap, { origin }: ClientOptions): Promise<void> {
  const head = Buffer.from([4, 1, origin.rawPort >> 8, origin.rawPort & 255, 0, 0, 0, 1, 0]);
  tap.write(Buffer.concat([head, Buffer.from(`${HOST}\0`)]));
  const code = (await tap.read(8))[1];
  if (code !== 90) throw new Refused(`SOCKS4 reply ${code}`);
}

async function echoThrough(tap: Tap, options: ClientOptions, open: OpenTunnel): Promise<Outcome> {
  await open(tap, options);
  const sent = someBytes(options, 65_536);
  tap.write('echo\n');
  tap.write(sent);
  return compare(await tap.read(sent.length), sent);
}

/** Ends the direction to the target before the answer arrives. The client must nevertheless get the answer. */
async function halfClose(tap: Tap, options: ClientOptions): Promise<Outcome> {
  await openConnect(tap, options);
  const sent = someBytes(options, 32_768);
  tap.write('digest\n');
  tap.socket.end(sent);
  const expected = Buffer.from(digestOf(sent));
  const got = await tap.readToEnd();
  if (got.length < expected.length) throw new Ended(`ended after ${got.length} bytes of the digest`);
  return compare(got, expected);
}

/** Pauses while it reads, so that noria has to stop reading from the target. */
async function slowReader(tap: Tap, options: ClientOptions): Promise<Outcome> {
  await openConnect(tap, options);
  const seed = randomBelow(options.random, 2 ** 31);
  const count = 262_144;
  tap.write(`send ${seed} ${count}\n`);
  for (let pauses = 0; pauses < 4; pauses += 1) {
    tap.socket.pause();
    await new Promise((resume) => setTimeout(resume, 50));
    tap.socket.resume();
    await new Promise((next) => setTimeout(next, 5));
  }
  return compare(await tap.read(count), bytesOf(seed, count));
}

async function download(tap: Tap, options: ClientOptions): Promise<Outcome> {
  return compareDownload(tap, options, randomBelow(options.random, 65_536));
}

/** Sends several requests on one connection. */
async function keepAlive(tap: Tap, options: ClientOptions): Promise<Outcome> {
  for (let request = 0; request < 5; request += 1) {
    const outcome = await compareDownload(tap, options, randomBelow(options.random, 4_096));
    if (outcome.kind !== 'ok') return outcome;
  }
  return OK;
}

async function compareDownload(tap: Tap, options: ClientOptions, count: number): Promise<Outcome> {
  const seed = randomBelow(options.random, 2 ** 31);
  const framing = options.random() < 0.5 ? '&length' : '';
  tap.write(requestHead(options, 'GET', `/?seed=${seed}&bytes=${count}${framing}`, ''));
  const head = await tap.readHead();
  expectStatus(head, 200);
  return compare(await readBody(tap, head), bytesOf(seed, count));
}

async function upload(tap: Tap, options: ClientOptions): Promise<Outcome> {
  const sent = someBytes(options, 131_072);
  tap.write(requestHead(options, 'POST', '/', `Content-Length: ${sent.length}\r\n`));
  tap.write(sent);
  const head = await tap.readHead();
  expectStatus(head, 200);
  return compare(await readBody(tap, head), Buffer.from(digestOf(sent)));
}

async function upgrade(tap: Tap, options: ClientOptions): Promise<Outcome> {
  tap.write(requestHead(options, 'GET', '/', 'Connection: Upgrade\r\nUpgrade: echo\r\n'));
  expectStatus(await tap.readHead(), 101);
  const sent = someBytes(options, 8_192);
  tap.write(sent);
  return compare(await tap.read(sent.length), sent);
}

/** A fixed session never moves: it keeps its exit, or ends. */
async function session(tap: Tap, options: ClientOptions): Promise<Outcome> {
  const name = nameOf(options);
  const asked = { ...options, username: `${options.username}-session-${name}-fixed` };
  const exits: string[] = [];
  for (let request = 0; request < 3; request += 1)
    exits.push(await exitOf(tap, asked, `${HOST}:${options.origin.httpPort}`));
  return new Set(exits).size === 1
    ? OK
    : brokenPromise(`the fixed session ${name} had the exits ${exits.join(', ')}`);
}

/** A site is not reached again through an exit that its client has reported as banned. */
async function ban(tap: Tap, options: ClientOptions): Promise<Outcome> {
  const name = nameOf(options);
  const asked = { ...options, username: `${options.username}-session-${name}` };
  const host = `${name}.example`;
  const banned = await exitOf(tap, asked, `${host}:${options.origin.httpPort}`);
  tap.write(requestHead(asked, 'GET', `/banned?host=${host}`, '', 'noria.invalid'));
  expectStatus(await tap.readHead(), 204);
  const next = await exitOf(tap, asked, `${host}:${options.origin.httpPort}`);
  return next === banned ? brokenPromise(`${host} was reached through ${banned} after its ban`) : OK;
}

async function routing(tap: Tap, options: ClientOptions): Promise<Outcome> {
  const asked = { ...options, username: `${options.username}-source-${ASKED_SOURCE}` };
  const exit = await exitOf(tap, asked, `${HOST}:${options.origin.httpPort}`);
  return options.isOfSource(exit) ? OK : brokenPromise(`${exit} is no exit of the source ${ASKED_SOURCE}`);
}

function brokenPromise(detail: string): Outcome {
  return { kind: 'broken-promise', detail };
}

function nameOf({ random }: ClientOptions): string {
  return `c${randomBelow(random, 2 ** 31)}`;
}

/** Asks the target from which address it sees this client. */
async function exitOf(tap: Tap, options: ClientOptions, host: string): Promise<string> {
  tap.write(requestHead(options, 'GET', '/exit', '', host));
  const head = await tap.readHead();
  expectStatus(head, 200);
  return String(await readBody(tap, head));
}

function requestHead(
  options: ClientOptions,
  method: string,
  path: string,
  fields: string,
  host = `${HOST}:${options.origin.httpPort}`,
): string {
  return `${method} http://${host}${path} HTTP/1.1\r\nHost: ${host}\r\n${proxyLogin(options)}${fields}\r\n`;
}

async function readBody(tap: Tap, head: string): Promise<Buffer> {
  const length = /^content-length: *(\d+)/im.exec(head)?.[1];
  if (length !== undefined) return tap.read(Number(length));
  const pieces: Buffer[] = [];
  for (;;) {
    const size = Number.parseInt(await readLine(tap), 16);
    const piece = await tap.read(size + 2);
    if (size === 0) return Buffer.concat(pieces);
    pieces.push(piece.subarray(0, size));
  }
}

async function readLine(tap: Tap): Promise<string> {
  let line = '';
  while (!line.endsWith('\r\n')) line += (await tap.read(1)).toString('latin1');
  return line;
}

function proxyLogin({ username, password }: ClientOptions): string {
  return `Proxy-Authorization: Basic ${Buffer.from(`${username}:${password}`).toString('base64')}\r\n`;
}

function expectStatus(head: string, expected: number): void {
  const status = Number(head.split(' ')[1]);
  const expiresIn = Number(/^x-noria-expires-in: *(\S+)/im.exec(head)?.[1] ?? 1);
  if (expiresIn < 0) throw new Expired(`X-Noria-Expires-In: ${expiresIn}`);
  if (status === expected) return;
  const code = /^x-noria-error: *(\S+)/im.exec(head)?.[1] ?? 'not from noria';
  throw new Refused(`${status} ${code}`);
}

function someBytes({ random }: ClientOptions, atMost: number): Buffer {
  return bytesOf(randomBelow(random, 2 ** 31), 1 + randomBelow(random, atMost));
}

function compare(got: Buffer, expected: Buffer): Outcome {
  if (got.equals(expected)) return OK;
  const at = expected.findIndex((byte, index) => got[index] !== byte);
  return {
    kind: 'wrong-bytes',
    detail: `${got.length} bytes instead of ${expected.length}, first difference at ${at}`,
  };
}
