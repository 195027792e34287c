/** Serves CONNECT requests: dials the target, replies, and starts the tunnel. */
import { NoriaError } from '../../core/faults.ts';
import { parsePort } from '../../core/host-port.ts';
import type { DialRequest } from '../../dialer/dial.ts';
import type { ClientConnection } from '../client-connection.ts';
import { badRequest, type Refusal, refusalOf } from '../refusal.ts';
import { openTunnel } from '../tunnel.ts';
import { identifyRequest } from './client-identity.ts';
import { formatFields } from './header-fields.ts';
import { formatRefusal, successHeaders } from './replies.ts';
import { parseRequestHead, type RequestHead } from './request-head.ts';

/** The first byte of a CONNECT request. */
const LETTER_C = 0x43;

/**
 * Parses a complete and valid head of a CONNECT request. Returns the head and its length in bytes, or undefined for
 * anything else.
 */
export function parseConnectHead(chunk: Buffer): { head: RequestHead; bytes: number } | undefined {
  if (chunk[0] !== LETTER_C) return undefined;
  const parsed = parseRequestHead(chunk);
  return parsed === undefined || parsed instanceof NoriaError || parsed.head.method !== 'CONNECT'
    ? undefined
    : parsed;
}

/**
 * Serves one CONNECT request. Nothing else may read from the connection's socket.
 * @param received - what the client has sent after the head.
 * @param awaitNext - called after a 407 reply if another request may follow.
 */
export function serveConnect(
  head: RequestHead,
  received: Buffer,
  connection: ClientConnection,
  awaitNext: () => void,
): void {
  const { socket } = connection;
  connection.setProtocol('connect');
  connection.beginRequest();
  const refuse = (refusal: Refusal): void => {
    // After a refused CONNECT, further bytes may be meant for the target, so they must not be parsed as a request.
    const keepAlive =
      refusal.code === 'auth-required' && head.keepAlive && received.length === 0 && !connection.draining;
    const reply = formatRefusal(refusal, keepAlive, head.fields);
    if (!keepAlive) connection.sendAndClose(reply);
    else {
      socket.write(reply);
      awaitNext();
    }
  };

  const request = readDialRequest(head, connection);
  if (request instanceof NoriaError) {
    connection.reportRefusal(request.code, request.message);
    refuse(refusalOf(request));
    return;
  }
  openTunnel(connection, request, {
    received,
    accept: ({ lease, attempts }) => {
      const fields = formatFields(successHeaders(lease, attempts));
      socket.write(`HTTP/1.1 200 Connection established\r\n${fields}\r\n`, 'latin1');
    },
    refuse,
  });
}

function readDialRequest(head: RequestHead, connection: ClientConnection): DialRequest | NoriaError {
  const problem = checkNoBody(head);
  if (problem !== undefined) return problem;
  const identity = identifyRequest(head.fields, connection);
  if (identity instanceof NoriaError) return identity;
  const target = connection.options.access.readTarget(head.target);
  if (target === undefined) return badRequest(whyNoTarget(head.target));
  const routing = connection.authorize(identity, target, head.fields);
  return routing instanceof NoriaError ? routing : { target, routing, use: 'tunnel' };
}

/** Says why the target of a CONNECT request is invalid. Does not quote it. */
function whyNoTarget(target: string): string {
  const port = /:(\d+)$/.exec(target)?.[1];
  if (port === undefined) return 'the CONNECT target is not HOST:PORT, for example example.com:443';
  return parsePort(port) === undefined
    ? 'the port of the CONNECT target is not between 1 and 65535'
    : 'the host of the CONNECT target is not a host name or an IP address';
}

/**
 * Refuses a CONNECT request that announces a body, because noria cannot know whether the body is meant for noria or for
 * the target. CONNECT has no body (RFC 9110 §9.3.6).
 */
function checkNoBody({ framing }: RequestHead): NoriaError | undefined {
  if (framing instanceof NoriaError) return framing;
  const announced = framing.kind === 'chunked' || (framing.kind === 'length' && framing.bytes > 0);
  return announced ? badRequest('the CONNECT request announces a body') : undefined;
}
