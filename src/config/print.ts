/** Prints a configuration as noria understands it, in YAML: every default filled in, every secret masked. For `noria check`. */
import { Document } from 'yaml';
import { z } from 'zod';
import type { Config, ListenerConfig, SourceConfig } from './config.ts';
import { type FileListener, SCHEMA } from './schema.ts';
import type { FileSource } from './schema-source.ts';

const NO_FOLDING = { lineWidth: 0 };

/** Each secret is `[secret]`, each path absolute. A key without a value is left out, unless it is `off`. */
export function printConfig(config: Config): string {
  const { file: _file, warnings: _warnings, account, admin, ...sections } = config;
  const texts = z.encode(SCHEMA, {
    ...sections,
    account: account && { ...account, password: undefined, passwordFile: undefined, keyFile: undefined },
    sources: config.sources.map(fileSource),
    listeners: config.listeners.map(fileListener),
    admin: admin && { ...admin, tokenFile: undefined },
  });
  // The failsafe schema has only texts, so that 20 and false need no quotes.
  return new Document(withoutUndefined(texts), { schema: 'failsafe' }).toString(NO_FOLDING);
}

function fileSource(source: SourceConfig): FileSource {
  const { key, count, params, extractHost, password, upstream, ...rest } = source;
  const numbered = { ...(count === undefined ? {} : { count }), ...params };
  return {
    ...rest,
    password,
    passwordFile: undefined,
    akey: password === undefined ? key : undefined,
    akeyFile: undefined,
    params: Object.fromEntries(Object.entries(numbered).map(([name, value]) => [name, String(value)])),
    host: extractHost,
    upstream: { ...upstream, auth: fileAuth(source) },
  };
}

function fileAuth({ instance, password, upstream: { auth } }: SourceConfig): FileSource['upstream']['auth'] {
  if (auth.kind !== 'always') return auth.kind;
  const { credentials } = auth;
  const isOwn = credentials.username === instance && credentials.password === password;
  return isOwn ? 'instance' : { ...credentials, passwordFile: undefined };
}

function fileListener(listener: ListenerConfig): FileListener {
  const { tls, users } = listener;
  return {
    ...listener,
    tls: tls && { cert: tls.certFile, key: tls.keyFile },
    users: users.map((user) => ({ ...user, passwordFile: undefined })),
  };
}

/** YAML would print a key that is `undefined` without a value. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(kept.map(([key, inner]) => [key, withoutUndefined(inner)]));
}
