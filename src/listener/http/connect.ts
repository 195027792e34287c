/**
 * Serves one CONNECT request, whether its head was read by hand or by node:http: a way to its target, the answer;
 * then the tunnel has the socket.
 */
import type { Socket } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { dialForClient } from '../dial-for-client.ts';
import { routeRequest, toldToClient } from './client-identity.ts';
import type { ConnectHead } from './connect-request.ts';
import { formatFields } from './header-fields.ts';
import { refusalText } from './refusal.ts';
import { type Refusal, successHeaders } from './replies.ts';

/**
 * @param socket - without listeners of a reader's on it; `early` is what has been read behind the head.
 * @param again - takes the socket back when the request was refused with 407 and another one may follow.
 */
export function serveConnect(
  socket: Socket,
  head: ConnectHead,
  early: Buffer,
  context: ConnectionContext,
  again: () => void,
): void {
  context.speaks('connect');
  context.handshakeDone();
  const refuse = (failure: Refusal): void => {
    // What follows a refused CONNECT may have been meant for the target: it must not be read as a request.
    const stays =
      failure.code === 'auth-required' && head.keepAlive && early.length === 0 && !context.draining;
    const answer = refusalText(failure, stays);
    if (!stays) {
      context.farewell(answer);
      return;
    }
    socket.write(answer);
    again();
  };

  const route =
    head.problem ??
    routeRequest(
      context,
      head.fields,
      () =>
        context.options.access.targets.read(head.authority) ??
        new NoriaError('bad-request', 'CONNECT names no host and port'),
      (target) => target,
    );
  if (route instanceof NoriaError) {
    context.refused(route.code, route.message);
    refuse(toldToClient(route));
    return;
  }

  dialForClient(socket, early, context, { ...route, use: 'tunnel' }, (result, sent) => {
    if (result.ok) {
      socket.write(
        `HTTP/1.1 200 Connection established\r\n${formatFields(successHeaders(result.connection))}\r\n`,
        'latin1',
      );
      context.tunnel(socket, result.connection, sent);
    } else if (result.failure.code === 'client-gone') {
      socket.destroy();
    } else {
      context.dialFailed(result.failure);
      refuse(result.failure);
    }
  });
}
