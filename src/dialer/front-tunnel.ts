/** Opens connections to the extraction service through the front proxy. */
import { connect } from 'node:net';
import { NoriaError } from '../core/faults.ts';
import type { FrontProxy } from '../core/front-proxy.ts';
import { formatHostPort, type HostPort } from '../core/host-port.ts';
import { describeFrontFailure, type FrontFailure, FrontHandshake } from './front-handshake.ts';

/** A connection through the front proxy. The caller owns its socket from the start. */
interface FrontTunnel {
  /** The socket. It already has an 'error' handler. */
  readonly socket: ReturnType<typeof connect>;
  /** Why the connection is not established after `ms`; undefined if it is established. */
  timedOut(ms: number): NoriaError | undefined;
}

/**
 * Starts a connection to the service.
 * @param done - called once. Without an error, the socket is connected to the service. The error is `service-transport`
 *   if the front proxy could not reach the service, otherwise `front-proxy-failed`.
 */
export function openFrontTunnel(
  front: FrontProxy,
  server: HostPort,
  done: (error: NoriaError | undefined) => void,
): FrontTunnel {
  const { host, port } = front;
  const socket = connect({ host, port, noDelay: true, autoSelectFamily: true });
  socket.on('error', () => {}); // ignored: 'close' follows every error, and `socket.errored` keeps the error
  const toError = (failure: FrontFailure): NoriaError => {
    const names = {
      front: `the front proxy ${formatHostPort(host, port)}`,
      server: server.text,
      key: 'service.via',
    };
    const { reason, advice } = describeFrontFailure(failure, names);
    const code = failure.problem === 'unreachable' ? 'service-transport' : 'front-proxy-failed';
    return new NoriaError(code, `${reason}; ${advice}`);
  };
  socket.on('connect', () => handshake.start());
  let isOpen = false;
  const handshake = new FrontHandshake(socket, { front, server }, (failure) => {
    isOpen = failure === undefined;
    done(failure && toError(failure));
  });
  return {
    socket,
    timedOut: (ms) => (isOpen ? undefined : toError(handshake.failureAfter(ms))),
  };
}
