/** What the system's error codes say about a connection to a member that failed. */
import type { Socket } from 'node:net';

/** This machine has run out of something. */
const LOCAL = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'EADDRNOTAVAIL', 'ENOMEM']);
/** Somebody's machine answered, if only to refuse or to break off. */
const ANSWERS = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ECONNABORTED']);

/** The code of what ended the socket; `closed` where it ended without an error. */
export function endCode(socket: Pick<Socket, 'errored'> | undefined): string {
  const error = socket?.errored;
  if (error === null || error === undefined) return 'closed';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

/** This machine could not even try. */
export function isLocal(code: string): boolean {
  return LOCAL.has(code);
}

/** The other machine was there. */
export function isAnswer(code: string): boolean {
  return ANSWERS.has(code);
}
