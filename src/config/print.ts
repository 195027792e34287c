/** Prints a configuration as YAML for `noria check`. */
import { Document } from 'yaml';
import { z } from 'zod';
import { MASK } from '../core/secret.ts';
import type {
  Config,
  FleetConfig,
  LinkSource,
  ListenerConfig,
  ServiceSource,
  SourceConfig,
} from './config.ts';
import { LINK_KEYS, SERVICE_KEYS } from './link-source.ts';
import { type FileListener, SCHEMA } from './schema.ts';
import type { FileFleet } from './schema-fleet.ts';
import type { FileSource } from './schema-source.ts';

const NO_FOLDING = { lineWidth: 0 };

/**
 * The text has all defaults, masked secrets and absolute paths. Keys without a value are left out, except sections
 * that are `off`.
 */
export function printConfig(config: Config): string {
  const { file: _file, warnings: _warnings, account, admin, fleet, ...sections } = config;
  const texts = z.encode(SCHEMA, {
    ...sections,
    account: account && { ...account, password: undefined, passwordFile: undefined, keyFile: undefined },
    sources: config.sources.map((source) =>
      source.product === 'link' ? fileLink(source) : fileSource(source),
    ),
    listeners: config.listeners.map(fileListener),
    admin: admin && { ...admin, tokenFile: undefined },
    fleet: fleet && fileFleet(fleet),
  });
  const printed = { ...texts, sources: texts.sources?.map(withoutForeignKeys) };
  // In the failsafe schema, every scalar is a text. So the library prints texts such as 20 and false without quotes.
  return new Document(withoutUndefined(printed), { schema: 'failsafe' }).toString(NO_FOLDING);
}

/** Returns the source without the keys that its product cannot have. */
function withoutForeignKeys(source: object): object {
  const isLink = 'product' in source && source.product === 'link';
  const foreign = isLink ? Object.keys(SERVICE_KEYS) : LINK_KEYS;
  return Object.fromEntries(Object.entries(source).filter(([key]) => !foreign.includes(key)));
}

/**
 * The type FileSource requires the keys of a link and the keys of a source of the service. These constants only satisfy
 * the type: `withoutForeignKeys` removes their keys before noria prints the source.
 */
const NO_LINK = { url: undefined, urlFile: undefined, method: undefined, headers: {}, body: undefined };
const NO_ANSWER: FileSource['answer'] = {
  ...{ format: 'auto' as const, list: undefined, address: undefined, expiry: undefined },
  ...{ exitIp: undefined, location: undefined },
  ...{ ok: undefined, tooFast: undefined, denied: undefined, empty: undefined },
};
const NO_INSTANCE: Pick<
  FileSource,
  'password' | 'passwordFile' | 'akey' | 'akeyFile' | 'format' | 'textLayout' | 'host'
> = {
  ...{ password: undefined, passwordFile: undefined, akey: undefined, akeyFile: undefined },
  ...{ format: 'json' as const, textLayout: undefined, host: undefined },
};

function fileParams({ count, params }: SourceConfig): FileSource['params'] {
  const numbered = { ...(count === undefined ? {} : { count }), ...params };
  return Object.fromEntries(Object.entries(numbered).map(([name, value]) => [name, String(value)]));
}

function fileLink(source: LinkSource): FileSource {
  const { name, product, instance, url, method, body, answer, headers, upstream, entryLogin } = source;
  const { intervalMs, dailyBudget, lifetimeMs, size, priority, baseUrl } = source;
  const byEntry = { ignore: 'none', use: 'auto', require: 'entry' } as const;
  const { auth } = upstream;
  return {
    ...{ name, product, instance, url, method, body, answer, baseUrl },
    ...{ intervalMs, dailyBudget, lifetimeMs, size, priority },
    ...NO_INSTANCE,
    urlFile: undefined,
    headers: Object.fromEntries(Object.keys(headers).map((name) => [name, MASK])),
    params: fileParams(source),
    upstream: {
      ...upstream,
      auth: auth.kind === 'always' ? { ...auth.credentials, passwordFile: undefined } : byEntry[entryLogin],
    },
  };
}

function fileSource(source: ServiceSource): FileSource {
  const { key, count: _count, params: _params, extractHost, password, upstream, ...rest } = source;
  return {
    ...rest,
    ...NO_LINK,
    answer: NO_ANSWER,
    password,
    passwordFile: undefined,
    akey: password === undefined ? key : undefined,
    akeyFile: undefined,
    params: fileParams(source),
    host: extractHost,
    upstream: { ...upstream, auth: fileAuth(source) },
  };
}

function fileAuth({ instance, password, upstream: { auth } }: ServiceSource): FileSource['upstream']['auth'] {
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

function fileFleet({ tls, ...fleet }: FleetConfig): FileFleet {
  const files = tls && { ca: tls.caFile, cert: tls.certFile, key: tls.keyFile };
  return { ...fleet, urlFile: undefined, tls: files };
}

/** Removes the keys whose value is `undefined`, because the YAML library would print them. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(kept.map(([key, inner]) => [key, withoutUndefined(inner)]));
}
