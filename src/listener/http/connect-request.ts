/**
 * Reads the head of a plain CONNECT request by hand, which costs a tenth of what node:http does for it.
 *
 * Pure, and stricter than node:http on purpose: whatever is not whole in the first chunk, or is odd in any way, is
 * not read here but left to node:http. So the two can never understand a head differently; a property test holds it.
 */
import type { NoriaError } from '../../core/faults.ts';
import { parseFieldLines } from './field-lines.ts';
import type { HeaderField } from './header-fields.ts';

/** A CONNECT request, whoever read it. */
export interface ConnectHead {
  /** The request target as it came; checked for its characters alone. */
  readonly authority: string;
  readonly fields: readonly HeaderField[];
  /** Whether another request may follow on the connection when this one is refused. */
  readonly keepAlive: boolean;
  /** What forbids it, whatever it asks for. */
  readonly problem?: NoriaError | undefined;
}

/** The same limit as node:http is given. */
export const MAX_REQUEST_HEAD_BYTES = 16 * 1024;

const FIRST_BYTES = Buffer.from('CONNECT ', 'latin1');
const REQUEST_LINE = /^CONNECT ([A-Za-z0-9._:[\]-]+) HTTP\/1\.1\r\n/;
/** They bear on where a message ends or what follows it: for node:http, and the one place of ours that judges them. */
const ODD_FIELD = /^(?:content-length|transfer-encoding|expect|upgrade)$/i;

/** @returns undefined when it is anything but a whole, plain CONNECT head; `bytes` is its length. */
export function parseConnectHead(chunk: Buffer): { head: ConnectHead; bytes: number } | undefined {
  if (chunk.length < FIRST_BYTES.length) return undefined;
  if (FIRST_BYTES.compare(chunk, 0, FIRST_BYTES.length) !== 0) return undefined;
  const end = chunk.indexOf('\r\n\r\n', 0, 'latin1');
  if (end < 0 || end + 4 > MAX_REQUEST_HEAD_BYTES) return undefined;

  const head = chunk.toString('latin1', 0, end + 2);
  const [requestLine = '', authority] = REQUEST_LINE.exec(head) ?? [];
  if (authority === undefined) return undefined;
  const fields = parseFieldLines(head, requestLine.length);
  if (fields === undefined) return undefined;
  let keepAlive = true;
  for (const [name, value] of fields) {
    if (ODD_FIELD.test(name)) return undefined;
    if (name.toLowerCase() !== 'connection') continue;
    const option = value.toLowerCase();
    if (option !== 'keep-alive' && option !== 'close') return undefined;
    keepAlive = option === 'keep-alive';
  }
  return { head: { authority, fields, keepAlive }, bytes: end + 4 };
}
