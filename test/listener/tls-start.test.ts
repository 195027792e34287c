import { expect, test } from 'vitest';
import { TlsStart } from '../../src/listener/relay.ts';

const [CHANGE_CIPHER, ALERT, HANDSHAKE, DATA] = [20, 21, 22, 23];

function record(type: number | undefined, bytes: number): Buffer {
  const head = Buffer.from([type ?? 0, 3, 3, bytes >> 8, bytes & 0xff]);
  return Buffer.concat([head, Buffer.alloc(bytes, HANDSHAKE)]);
}

const HELLO_BYTES = 517;
/** With the client's Finished and a request. */
const REQUEST_BYTES = HELLO_BYTES + 80 + 120;
const TICKETS = Buffer.concat([record(DATA, 250), record(DATA, 250)]);
const FLIGHT_13 = Buffer.concat([record(HANDSHAKE, 90), record(CHANGE_CIPHER, 1), record(DATA, 2_500)]);
const FLIGHT_12 = Buffer.concat([record(HANDSHAKE, 80), record(HANDSHAKE, 2_500), record(HANDSHAKE, 4)]);
const FINISHED_12 = Buffer.concat([record(HANDSHAKE, 200), record(CHANGE_CIPHER, 1), record(HANDSHAKE, 40)]);
const CLOSE_13 = record(DATA, 19);
const CLOSE_12 = record(ALERT, 26);

/** What noria decides if the target's side then ends. */
function decide(flight: Buffer, after: readonly Buffer[], bytesUp: number, chunkBytes: number): string {
  const start = new TlsStart(HELLO_BYTES);
  const take = (bytes: Buffer, up: number) => {
    for (let at = 0; at < bytes.length; at += chunkBytes)
      if (start.take(bytes.subarray(at, at + chunkBytes), up)) return true;
    return false;
  };
  if (take(flight, HELLO_BYTES) || take(Buffer.concat(after), bytesUp)) return 'answered';
  return start.hasEndedEarly(bytesUp) ? 'ended early' : 'unclear';
}

test.each([
  ['TLS 1.3, nothing after the handshake', FLIGHT_13, [], REQUEST_BYTES, 'ended early'],
  ['TLS 1.3, tickets', FLIGHT_13, [TICKETS], REQUEST_BYTES, 'ended early'],
  [
    'TLS 1.3, a short answer and its end',
    FLIGHT_13,
    [TICKETS, record(DATA, 200), CLOSE_13],
    REQUEST_BYTES,
    'unclear',
  ],
  ['TLS 1.3, a page', FLIGHT_13, [TICKETS, record(DATA, 800)], REQUEST_BYTES, 'answered'],
  ['TLS 1.3, only the handshake of the target', FLIGHT_13, [], HELLO_BYTES, 'unclear'],
  ['TLS 1.3, a client that refuses the certificate', FLIGHT_13, [], HELLO_BYTES + 30, 'unclear'],
  ['TLS 1.2, nothing after the handshake', FLIGHT_12, [FINISHED_12], REQUEST_BYTES, 'ended early'],
  ['TLS 1.2, a short answer', FLIGHT_12, [FINISHED_12, record(DATA, 40)], REQUEST_BYTES, 'answered'],
  ['TLS 1.2, an alert', FLIGHT_12, [FINISHED_12, CLOSE_12], REQUEST_BYTES, 'unclear'],
] as const)('tls start: %s', (_, flight, after, bytesUp, expected) => {
  for (const chunkBytes of [1, 7, 1_400, 65_536])
    expect(decide(flight, after, bytesUp, chunkBytes), `in chunks of ${chunkBytes}`).toBe(expected);
});

test('tls start: up to 1,024 bytes after the handshake may be tickets, and 50 a Finished', () => {
  const tickets = (bytes: number) => record(DATA, bytes - 5);
  for (const [after, bytesUp, expected] of [
    [tickets(1_024), REQUEST_BYTES, 'ended early'],
    [tickets(1_025), REQUEST_BYTES, 'answered'],
    [TICKETS, HELLO_BYTES + 50, 'ended early'],
    [TICKETS, HELLO_BYTES + 49, 'unclear'],
  ] as const)
    for (const chunkBytes of [1, 5, 65_536])
      expect(decide(FLIGHT_13, [after], bytesUp, chunkBytes), `${after.length} ${bytesUp}`).toBe(expected);
});

test('tls start: an alert counts only as the last record', () => {
  for (const [after, expected] of [
    [[record(ALERT, 2), record(HANDSHAKE, 40)], 'ended early'],
    [[record(HANDSHAKE, 40), record(ALERT, 2)], 'unclear'],
    [[record(HANDSHAKE, 19)], 'ended early'],
  ] as const)
    expect(decide(FLIGHT_12, after, REQUEST_BYTES, 65_536)).toBe(expected);
  for (const [bytes, expected] of [
    [18, 'ended early'],
    [19, 'unclear'],
    [20, 'ended early'],
  ] as const)
    expect(decide(FLIGHT_13, [record(DATA, bytes)], REQUEST_BYTES, 65_536), `${bytes}`).toBe(expected);
});
