/**
 * Serves one absolute-form request: decides whether it may go, and where to; forwarding.ts does the going.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { NoriaError } from '../../core/faults.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { routeRequest, toldToClient } from './client-identity.ts';
import { Forward, type Upgrade } from './forward.ts';
import {
  checkHttpVersion,
  decrementMaxForwards,
  type HeaderField,
  pairFields,
  parseAbsoluteTarget,
  requestFraming,
} from './header-fields.ts';
import { answerRequest, refuseRequest } from './refusal.ts';
import type { HttpReply } from './replies.ts';
import type { ForwardRequest } from './request-head.ts';

const NOTHING_MORE: HttpReply = {
  status: 200,
  reasonPhrase: 'OK',
  headers: [['Content-Length', '0']],
  body: '',
};

/**
 * Serves one request; owns its response, and the socket where it is an upgrade, until both are done with.
 *
 * @returns gives it up, telling the client nothing; without effect once it is over.
 */
export function serveForward(
  request: IncomingMessage,
  response: ServerResponse,
  context: ConnectionContext,
  upgrade?: Upgrade,
): () => void {
  const fields = pairFields(request.rawHeaders);
  const order = readOrder(request, fields, context, upgrade !== undefined);
  if (order instanceof NoriaError) {
    context.refused(order.code, order.message);
    refuseRequest(request, response, toldToClient(order), context);
    return () => {};
  }
  const fieldsOn = decrementMaxForwards(order.method, order.fields);
  if (fieldsOn === undefined) {
    endHere(request, response, context);
    return () => {};
  }
  const forwarding = new Forward(request, response, context, { ...order, fields: fieldsOn }, upgrade);
  forwarding.start();
  return forwarding.giveUp;
}

/** Answers a request that may go no further (RFC 9110 §7.6.2). A TRACE would have to be reflected, and noria tells no client's text. */
function endHere(request: IncomingMessage, response: ServerResponse, context: ConnectionContext): void {
  if (request.method === 'TRACE') {
    const reason = 'A TRACE with Max-Forwards: 0 ends here, and noria reflects no request.';
    context.refused('not-implemented', 'TRACE with Max-Forwards: 0');
    refuseRequest(request, response, { code: 'not-implemented', reason }, context);
    return;
  }
  answerRequest(request, response, NOTHING_MORE, context);
}

function readOrder(
  request: IncomingMessage,
  fields: readonly HeaderField[],
  context: ConnectionContext,
  upgrade: boolean,
): ForwardRequest | NoriaError {
  const { method = '', url = '' } = request;
  const problem = checkHttpVersion(request.httpVersionMajor);
  if (problem !== undefined) return problem;
  const framing = requestFraming(fields, request.httpVersionMinor);
  if (framing instanceof NoriaError) return framing;
  const route = routeRequest(
    context,
    fields,
    () => parseAbsoluteTarget(method, url),
    ({ target }) => target,
  );
  return route instanceof NoriaError ? route : { method, fields, framing, route, upgrade };
}
