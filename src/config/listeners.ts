/** Resolves one listener: checks its keys against each other, and reads its secrets and its certificate. */
import { createSecureContext } from 'node:tls';
import { describeError } from '../core/faults.ts';
import { formatListenAddress, isLocalAddress } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import type { ListenerConfig, TlsConfig } from './config.ts';
import { type ResolveContext, resolveUser } from './credentials.ts';
import type { FileListener } from './schema.ts';

/**
 * @param path - the path of the listener in the file: `listeners[0]`.
 * @returns undefined if the listener is invalid; `problems` then says why.
 */
export function resolveListener(
  listener: FileListener,
  path: string,
  context: ResolveContext,
): ListenerConfig | undefined {
  const { problems } = context;
  const { address, protocols } = listener;
  const users = listener.users.map((user, index) => resolveUser(user, `${path}.users[${index}]`, context));
  problems.duplicates(
    listener.users.map(({ username }, index) => [`${path}.users[${index}].username`, username]),
  );
  problems.duplicates(protocols.map((protocol, index) => [`${path}.protocols[${index}]`, protocol]));
  if (users.length === 0 && !isLocalAddress(address) && !problems.has(`${path}.users`)) {
    problems.missing(
      `${path}.address`,
      `other machines can reach ${formatListenAddress(address)}, and without users anyone could use this proxy; add users, or listen on 127.0.0.1`,
      { wanted: [`${path}.users`], side: 'value' },
    );
  }
  const tls = listener.tls && resolveTls(listener.tls, `${path}.tls`, context);
  const valid = users.filter((user) => user !== undefined);
  if (valid.length < users.length || (listener.tls !== undefined && tls === undefined)) return undefined;
  return { ...listener, tls, users: valid };
}

function resolveTls(
  tls: NonNullable<FileListener['tls']>,
  path: string,
  { files, problems }: ResolveContext,
): TlsConfig | undefined {
  const cert = files.readText(`${path}.cert`, tls.cert, { isSecret: false });
  const key = files.readText(`${path}.key`, tls.key, { isSecret: true });
  if (cert === undefined || key === undefined) return undefined;
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    const reason = describeError(error);
    problems.error(path, `the certificate and the key cannot be used together: ${reason}`, 'key');
    return undefined;
  }
  return {
    certFile: files.absolute(tls.cert),
    keyFile: files.absolute(tls.key),
    cert,
    key: new Secret(key),
  };
}
