/**
 * Answers of noria's own: as text for a bare socket, or through a node:http response.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ConnectionContext } from '../client-connection.ts';
import { formatFields } from './header-fields.ts';
import { type HttpReply, type Refusal, refusalReply } from './replies.ts';

/** How long the rest of a request's body is read away after its answer; then the connection is cut. */
const MAX_DISCARD_MS = 2_000;

/** A whole answer, for a socket that no node:http response is bound to. */
export function refusalText(failure: Refusal, keepAlive: boolean): string {
  const { status, reasonPhrase, headers, body } = refusalReply(failure);
  const connection = keepAlive ? 'keep-alive' : 'close';
  return `HTTP/1.1 ${status} ${reasonPhrase}\r\n${formatFields(headers)}Connection: ${connection}\r\n\r\n${body}`;
}

/** Answers a request with a refusal. */
export function refuseRequest(
  request: IncomingMessage,
  response: ServerResponse,
  failure: Refusal,
  context: ConnectionContext,
): void {
  answerRequest(request, response, refusalReply(failure), context);
}

/**
 * Answers a request. The connection stays usable, unless the client wants it closed, nothing of it is served, or a body
 * is announced that may or may not follow.
 */
export function answerRequest(
  request: IncomingMessage,
  response: ServerResponse,
  { status, reasonPhrase, headers, body }: HttpReply,
  context: ConnectionContext,
): void {
  const expects = request.headers.expect !== undefined;
  const stays = response.shouldKeepAlive && context.refusal === undefined && !context.draining && !expects;
  response.sendDate = false;
  const fields = [...headers, ['Connection', stays ? 'keep-alive' : 'close']];
  response.writeHead(status, reasonPhrase, fields.flat());
  response.end(body);
  discardRest(request, context);
}

/** Reads away what is left of a request that has its answer, for a short while: where it ends the next one begins. */
export function discardRest(request: IncomingMessage, context: ConnectionContext): void {
  // One without a body is not complete either while its head is being told, and never says that it closed.
  if (request.complete || !announcesBody(request)) return;
  const { deadlines } = context.options;
  const limit = deadlines.set(MAX_DISCARD_MS, () => request.socket.destroy());
  request.on('close', () => deadlines.clear(limit));
  request.resume();
}

function announcesBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}
