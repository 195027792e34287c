/**
 * Recognises from a tunnel's first bytes that the target ended it right after the TLS handshake, before any application
 * data. It reads only the heads of the target's first records (RFC 8446 §5.1, RFC 5246 §6.2.1), and nothing inside.
 */

const HEAD_BYTES = 5;
const ALERT = 21;
const HANDSHAKE = 22;
const APPLICATION_DATA = 23;
/** An encrypted alert of TLS 1.3: two bytes, the content type and the tag of the cipher. */
const TLS13_ALERT_BYTES = 19;
/** Session tickets of TLS 1.3 look like application data. Two of them have some 500 bytes with OpenSSL, one with Go. */
const MAX_TICKETS_BYTES = 1_024;
/** The client's Finished is longer; an alert with which it refuses the target's certificate is shorter. */
const MIN_FINISHED_BYTES = 50;

export function isTlsRecord(chunk: Buffer): boolean {
  return chunk[0] === HANDSHAKE;
}

export class TlsStart {
  /** The length of the client's first flight. */
  readonly #helloBytes: number;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;
  /** How much of the current record has not arrived. */
  #leftBytes = 0;
  #isTls13 = false;
  #isAlert = false;
  #bytesAfterHandshake = 0;

  constructor(bytesUp: number) {
    this.#helloBytes = bytesUp;
  }

  /**
   * Takes the next bytes of the target. @param bytesUp - what the client has sent so far.
   * @returns whether application data has come: no further call is necessary.
   */
  take(chunk: Buffer, bytesUp: number): boolean {
    const isAfterHandshake = bytesUp > this.#helloBytes;
    if (isAfterHandshake) this.#bytesAfterHandshake += chunk.length;
    if (this.#bytesAfterHandshake > MAX_TICKETS_BYTES) return true;
    for (let at = 0; at < chunk.length; ) {
      if (this.#leftBytes > 0) {
        const bytes = Math.min(this.#leftBytes, chunk.length - at);
        this.#leftBytes -= bytes;
        at += bytes;
        continue;
      }
      this.#head[this.#headBytes] = chunk[at] ?? 0;
      this.#headBytes += 1;
      at += 1;
      if (this.#headBytes < HEAD_BYTES) continue;
      this.#headBytes = 0;
      this.#leftBytes = this.#head.readUInt16BE(3);
      const type = this.#head[0];
      this.#isAlert = type === ALERT || (type === APPLICATION_DATA && this.#leftBytes === TLS13_ALERT_BYTES);
      if (type !== APPLICATION_DATA) continue;
      // Only TLS 1.3 sends its handshake in such records, before the client's second flight.
      if (!isAfterHandshake) this.#isTls13 = true;
      else if (!this.#isTls13) return true;
    }
    return false;
  }

  /** Whether the handshake was complete and the target said nothing since, not even why it ends. */
  hasEndedEarly(bytesUp: number): boolean {
    return bytesUp - this.#helloBytes >= MIN_FINISHED_BYTES && !this.#isAlert;
  }
}
