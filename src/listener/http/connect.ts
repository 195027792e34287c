/**
 * Serves CONNECT requests: parses a plain request head, dials the target, replies, and starts the tunnel.
 *
 * The parser costs a tenth of node:http and is stricter on purpose. It leaves every head that is not complete in the first chunk,
 * or unusual in any way, to node:http, so the two cannot understand a head differently. A property test checks this.
 */
import { NoriaError } from '../../core/faults.ts';
import type { DialRequest } from '../../dialer/dial.ts';
import type { ClientConnection } from '../client-connection.ts';
import { type Refusal, refusalOf } from '../refusal.ts';
import { identifyRequest } from './client-identity.ts';
import { formatFields, type HeaderField, parseFieldLines } from './header-fields.ts';
import { formatRefusal, successHeaders } from './replies.ts';

/** The head of a CONNECT request, parsed here or by node:http. */
export interface ConnectHead {
  /** The request target as received. */
  readonly authority: string;
  readonly fields: readonly HeaderField[];
  /** Whether the client may send another request on this connection after a refusal. */
  readonly keepAlive: boolean;
  /** Why the request is refused, whatever its target. */
  readonly problem?: NoriaError | undefined;
}

/** node:http has the same limit. */
export const MAX_REQUEST_HEAD_BYTES = 16 * 1024;

const FIRST_BYTES = Buffer.from('CONNECT ', 'latin1');
const REQUEST_LINE = /^CONNECT ([A-Za-z0-9._:[\]-]+) HTTP\/1\.1\r\n/;
/** Fields about the end of a message or what follows it: requests with them are left to node:http and framing.ts. */
const UNUSUAL_FIELD = /^(?:content-length|transfer-encoding|expect|upgrade)$/i;

/** Parses a complete, plain CONNECT head; undefined for anything else. `bytes` is its length. */
export function parseConnectHead(chunk: Buffer): { head: ConnectHead; bytes: number } | undefined {
  if (chunk.length < FIRST_BYTES.length) return undefined;
  if (FIRST_BYTES.compare(chunk, 0, FIRST_BYTES.length) !== 0) return undefined;
  const end = chunk.indexOf('\r\n\r\n', 0, 'latin1');
  if (end < 0 || end + 4 > MAX_REQUEST_HEAD_BYTES) return undefined;

  const text = chunk.toString('latin1', 0, end + 2);
  const [requestLine = '', authority] = REQUEST_LINE.exec(text) ?? [];
  if (authority === undefined) return undefined;
  const fields = parseFieldLines(text, requestLine.length);
  if (fields === undefined) return undefined;
  let keepAlive = true;
  for (const [name, value] of fields) {
    if (UNUSUAL_FIELD.test(name)) return undefined;
    if (name.toLowerCase() !== 'connection') continue;
    const option = value.toLowerCase();
    if (option !== 'keep-alive' && option !== 'close') return undefined;
    keepAlive = option === 'keep-alive';
  }
  return { head: { authority, fields, keepAlive }, bytes: end + 4 };
}

/**
 * Serves one CONNECT request. No parser may be listening on the connection's socket.
 *
 * @param received - what the client has already sent after the head.
 * @param awaitNext - called after a 407 reply when another request may follow.
 */
export function serveConnect(
  head: ConnectHead,
  received: Buffer,
  connection: ClientConnection,
  awaitNext: () => void,
): void {
  const { socket } = connection;
  connection.setProtocol('connect');
  connection.beginRequest();
  const refuse = (refusal: Refusal): void => {
    // Bytes after a refused CONNECT may be meant for the target, so they must not be parsed as a request.
    const keepAlive =
      refusal.code === 'auth-required' && head.keepAlive && received.length === 0 && !connection.draining;
    const reply = formatRefusal(refusal, keepAlive);
    if (!keepAlive) {
      connection.sendAndClose(reply);
      return;
    }
    socket.write(reply);
    awaitNext();
  };

  const request = readDialRequest(head, connection);
  if (request instanceof NoriaError) {
    connection.reportRefusal(request.code, request.message);
    refuse(refusalOf(request));
    return;
  }
  connection.dial(request, received, (result, early) => {
    if (result.ok) {
      const fields = formatFields(successHeaders(result.connection));
      socket.write(`HTTP/1.1 200 Connection established\r\n${fields}\r\n`, 'latin1');
      connection.tunnel(result.connection, early);
    } else if (result.failure.code === 'client-gone') {
      socket.destroy();
    } else {
      connection.reportFailedDial(result.failure);
      refuse(result.failure);
    }
  });
}

function readDialRequest(head: ConnectHead, connection: ClientConnection): DialRequest | NoriaError {
  if (head.problem !== undefined) return head.problem;
  const identity = identifyRequest(head.fields, connection);
  if (identity instanceof NoriaError) return identity;
  const target = connection.options.access.readTarget(head.authority);
  if (target === undefined) return new NoriaError('bad-request', 'CONNECT names no host and port');
  const routing = connection.route(identity, target, head.fields);
  return routing instanceof NoriaError ? routing : { target, routing, use: 'tunnel' };
}
