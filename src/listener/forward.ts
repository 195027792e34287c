/**
 * Serves one absolute-form request: decides whether it may go, and where to; forwarding.ts does the going.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { NoriaError } from '../core/faults.ts';
import type { ConnectionContext } from './connection.ts';
import { Forwarding, type Upgrade } from './forwarding.ts';
import { absoluteTarget, type Field, pairFields, requestFraming } from './http-fields.ts';
import { refuseRequest } from './http-refusal.ts';
import type { Order } from './request-head.ts';
import { routeRequest, toldToClient } from './route.ts';

/**
 * Serves one request; owns its response, and the socket where it is an upgrade, until both are done with.
 *
 * @returns gives it up, telling the client nothing; without effect once it is over.
 */
export function forward(
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
  const forwarding = new Forwarding(request, response, context, order, upgrade);
  forwarding.start();
  return forwarding.giveUp;
}

function readOrder(
  request: IncomingMessage,
  fields: readonly Field[],
  context: ConnectionContext,
  upgrade: boolean,
): Order | NoriaError {
  const { method = '', url = '' } = request;
  const framing = requestFraming(fields, request.httpVersionMinor);
  if (framing instanceof NoriaError) return framing;
  const route = routeRequest(
    context,
    fields,
    () => absoluteTarget(method, url),
    ({ target }) => target,
  );
  return route instanceof NoriaError ? route : { method, fields, framing, route, upgrade };
}
