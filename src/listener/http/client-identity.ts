/**
 * Everything that is decided about an HTTP request before a member is asked for, in the order that tells a stranger
 * the least: may this client come, who is it, what is the target, may it be reached, what is wished for.
 */
import { NoriaError } from '../../core/faults.ts';
import type { HostPort } from '../../core/host-port.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import { parseBasicCredentials } from '../access.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { readRoutingOptions } from '../routing-options.ts';
import { fieldValues, type HeaderField } from './header-fields.ts';
import { type Refusal, refusedBy } from './replies.ts';

/** Where a request goes, and through what kind of member. */
export interface Route<Target> {
  readonly target: Target;
  readonly routing: RoutingOptions;
}

/**
 * @param readTarget - asked only once the client is known; gives what `hostOf` finds the host and port in.
 * @returns the first thing that stands against it; its message is for the log.
 */
export function routeRequest<Target>(
  context: ConnectionContext,
  fields: readonly HeaderField[],
  readTarget: () => Target | NoriaError,
  hostOf: (target: Target) => HostPort,
): Route<Target> | NoriaError {
  if (context.refusal !== undefined) return context.refusal;
  const { access } = context.options;
  const credentials = fieldValues(fields, 'proxy-authorization');
  if (credentials.length > 1) return new NoriaError('bad-request', 'two Proxy-Authorization fields');
  if (fieldValues(fields, 'host').length > 1) return new NoriaError('bad-request', 'two Host fields');
  const identity = context.identify(parseBasicCredentials(credentials[0]));
  if (identity instanceof NoriaError) return identity;

  const target = readTarget();
  if (target instanceof NoriaError) return target;
  const hostPort = hostOf(target);
  const denied = access.targets.denies(hostPort);
  if (denied !== undefined) return denied;
  const routing = readRoutingOptions(
    identity.routingText,
    fields,
    context.routingContext(identity, hostPort.host),
  );
  return routing instanceof NoriaError ? routing : { target, routing };
}

/** What the client is told of it: the code, and a reason where one was written for clients. */
export function toldToClient(error: NoriaError): Refusal {
  const { reason } = error.context;
  return typeof reason === 'string' ? { ...refusedBy(error), reason } : refusedBy(error);
}
