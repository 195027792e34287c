/** One listener: its keys checked against each other, its secrets and certificates read. */
import { createSecureContext } from 'node:tls';
import { describeError } from '../core/faults.ts';
import { formatListenAddress, isLocalAddress } from '../core/listen-address.ts';
import { Secret } from '../core/secret.ts';
import type { Credentials, ListenerConfig, TlsConfig } from './config.ts';
import { besideConfig, type ConfigFiles } from './files.ts';
import { password } from './kinds.ts';
import type { Problems } from './problems.ts';
import type { RawListener } from './schema.ts';
import type { SecretReader } from './secrets.ts';

/** What listeners share. */
export interface ListenerContext {
  /** The configuration's own. */
  readonly file: string;
  readonly files: ConfigFiles;
  readonly problems: Problems;
  readonly secrets: SecretReader;
}

/** @param path - where the listener stands: `listeners[0]`. @returns undefined when there is a problem that leaves nothing to build. */
export function resolveListener(
  raw: RawListener,
  path: string,
  context: ListenerContext,
): ListenerConfig | undefined {
  const { problems } = context;
  const users = raw.users.map((user, index) => resolveUser(user, `${path}.users[${index}]`, context));
  tellTwins(
    raw.users.map((user) => user.username),
    (index) => `${path}.users[${index}].username`,
    problems,
  );
  tellTwins(raw.protocols, (index) => `${path}.protocols[${index}]`, problems);
  if (users.length === 0 && !isLocalAddress(raw.address) && !problems.has(`${path}.users`)) {
    problems.missing(
      `${path}.address`,
      `${formatListenAddress(raw.address)} can be reached from other machines, and there are no users: anyone could use it; add users, or listen on 127.0.0.1`,
      { wanted: [`${path}.users`], side: 'value' },
    );
  }
  const tls = raw.tls === undefined ? undefined : readTls(raw.tls, `${path}.tls`, context);
  const known = users.filter((user) => user !== undefined);
  if (known.length < users.length || (raw.tls !== undefined && tls === undefined)) return undefined;
  return {
    address: raw.address,
    protocols: raw.protocols,
    tls,
    users: known,
    allow: raw.allow,
    denyTargets: raw.denyTargets,
    idleTimeoutMs: raw.idleTimeout,
    maxConnections: raw.maxConnections,
    source: raw.source,
    session: raw.session,
  };
}

/** Tells every text of a list that stands in it before. */
export function tellTwins(
  texts: readonly (string | undefined)[],
  pathOf: (index: number) => string,
  problems: Problems,
): void {
  texts.forEach((text, index) => {
    const first = texts.indexOf(text);
    if (text === undefined || first === index || problems.has(pathOf(index))) return;
    problems.error(
      pathOf(index),
      `${problems.quote(pathOf(index), text)} stands at ${pathOf(first)} already`.trim(),
    );
  });
}

function resolveUser(
  user: RawListener['users'][number],
  path: string,
  { problems, secrets }: ListenerContext,
): Credentials | undefined {
  const { username, password: plain, passwordFile: file } = user;
  const given = secrets.read({ path, name: 'password', plain, file }, password());
  if (given !== undefined) return { username, password: given };
  if (!problems.has(path)) {
    const wanted = [`${path}.password`, `${path}.passwordFile`];
    problems.missing(path, 'has no password; wants password or passwordFile', { wanted });
  }
  return undefined;
}

function readTls(
  raw: { readonly cert: string; readonly key: string },
  path: string,
  context: ListenerContext,
): TlsConfig | undefined {
  const { problems, file } = context;
  const certFile = besideConfig(file, raw.cert);
  const keyFile = besideConfig(file, raw.key);
  const cert = readCertificate(certFile, `${path}.cert`, context);
  const key = context.secrets.readText(`${path}.key`, keyFile);
  if (cert === undefined || key === undefined) return undefined;

  try {
    createSecureContext({ cert, key });
  } catch (error) {
    problems.error(
      path,
      `the certificate and the key cannot be used together: ${describeError(error)}`,
      'key',
    );
    return undefined;
  }
  return { certFile, keyFile, cert, key: new Secret(key) };
}

function readCertificate(
  file: string,
  path: string,
  { problems, files }: ListenerContext,
): string | undefined {
  try {
    return files.read(file).toString('utf8');
  } catch (error) {
    problems.error(path, `the file cannot be read: ${describeError(error)}`);
    return undefined;
  }
}
