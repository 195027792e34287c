/**
 * The head of a proxy's answer to CONNECT, read from raw bytes.
 *
 * Only the status and the place where the head ends matter: what follows a 2xx is the tunnel, whatever
 * Content-Length or Transfer-Encoding say (RFC 9110 §9.3.6), and what follows another status is thrown away.
 */

/** `endBytes`: where the head ends and the next bytes begin. */
interface StatusAndEnd {
  readonly status: number;
  readonly endBytes: number;
}

const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;
const ZERO = 0x30;
const NINE = 0x39;
const VERSION = Buffer.from('HTTP/1.', 'latin1');
/** `HTTP/1.1 200`, and the byte after it. */
const STATUS_AT = VERSION.length + 2;
const STATUS_END = STATUS_AT + 3;

/**
 * Reads a head from the start of `bytes`.
 *
 * Takes HTTP/1.0 and 1.1, a missing reason phrase and bare LF line ends (RFC 9112 §2.2); what is none of that is
 * `garbage` as soon as the first bytes show it. The caller limits the length.
 *
 * @param scanned - how many bytes an earlier call has seen already, so that a head that comes byte by byte is not read
 *   from its start each time.
 */
export function readResponseHead(bytes: Buffer, scanned = 0): StatusAndEnd | 'more' | 'garbage' {
  if (scanned <= STATUS_END && !startsLikeStatusLine(bytes)) return 'garbage';
  const endBytes = findHeadEnd(bytes, Math.max(STATUS_END, scanned - 3));
  if (endBytes === undefined) return 'more';
  const digit = (index: number) => (bytes[STATUS_AT + index] ?? ZERO) - ZERO;
  return { status: digit(0) * 100 + digit(1) * 10 + digit(2), endBytes };
}

/** Whether what is there so far can be the beginning of `HTTP/1.x NNN`. */
function startsLikeStatusLine(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, STATUS_END + 1);
  for (let index = 0; index < length; index += 1) {
    const byte = bytes[index] ?? 0;
    if (index < VERSION.length) {
      if (byte !== VERSION[index]) return false;
    } else if (index === STATUS_AT - 1) {
      if (byte !== SPACE) return false;
    } else if (index === STATUS_END) {
      if (byte !== SPACE && byte !== CR && byte !== LF) return false;
    } else if (byte < ZERO || byte > NINE) {
      return false;
    }
  }
  return true;
}

/** The place after the first empty line, looking from `from` on. */
function findHeadEnd(bytes: Buffer, from: number): number | undefined {
  for (let lf = bytes.indexOf(LF, from); lf >= 0; lf = bytes.indexOf(LF, lf + 1)) {
    if (bytes[lf + 1] === LF) return lf + 2;
    if (bytes[lf + 1] === CR && bytes[lf + 2] === LF) return lf + 3;
  }
  return undefined;
}
