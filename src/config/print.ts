/** Prints a configuration as YAML for `noria check`. */
import { Document } from 'yaml';
import { z } from 'zod';
import { formatHostPort } from '../core/host-port.ts';
import type { Config, FleetConfig, ListenerConfig, SourceConfig } from './config.ts';
import { inputOf } from './keys.ts';
import { isScalar } from './scalars.ts';
import { SCHEMA } from './schema.ts';

/**
 * The text has all defaults, masked secrets and absolute paths. Keys without a value are left out, except sections
 * that are `off`.
 */
export function printConfig(config: Config): string {
  const written = write(SCHEMA, {
    ...config,
    sources: config.sources.map(fileSource),
    listeners: config.listeners.map(fileListener),
    fleet: config.fleet && fileFleet(config.fleet),
  });
  // In the failsafe schema, every scalar is a text. So the library prints texts such as 20 and false without quotes.
  return new Document(written, { schema: 'failsafe' }).toString({ lineWidth: 0 });
}

function write(schema: unknown, value: unknown): unknown {
  const input = inputOf(schema);
  if (isScalar(input)) return value === undefined ? undefined : input.scalarType.write(value);
  if (input instanceof z.ZodUnion) {
    if (value === undefined) return 'off';
    return write(input.options[typeof value === 'object' ? 1 : 0], value);
  }
  if (value === undefined) return undefined;
  if (input instanceof z.ZodArray && Array.isArray(value))
    return value.map((entry) => write(input.element, entry));
  if (typeof value !== 'object' || value === null) return String(value);
  const entries: [string, unknown][] =
    input instanceof z.ZodObject
      ? Object.entries(input.shape).map(([key, inner]) => [
          key,
          write(inner, Reflect.get(value, key) ?? Reflect.get(value, `${key}Ms`)),
        ])
      : Object.entries(value).map(([key, inner]) => [key, String(inner)]);
  return Object.fromEntries(entries.filter(([, inner]) => inner !== undefined));
}

/** What noria derives for a source that makes no call. */
const UNPRINTED = { instance: undefined, baseUrl: undefined, intervalMs: undefined };

function fileSource(source: SourceConfig): object {
  const { count, params, upstream } = source;
  const file = { ...source, params: { ...(count !== undefined && { count }), ...params } };
  if (source.product === 'gateway') {
    const address = formatHostPort(source.host, source.port);
    const auth = source.account;
    return {
      ...file,
      ...UNPRINTED,
      address,
      host: undefined,
      params: undefined,
      upstream: { ...upstream, auth },
    };
  }
  if (source.product === 'list')
    return { ...file, ...UNPRINTED, params: undefined, upstream: { ...upstream, auth: authOf(source) } };
  if (source.product === 'link')
    return {
      ...file,
      instance: undefined,
      baseUrl: undefined,
      upstream: { ...upstream, auth: authOf(source) },
    };
  const { key, password, extractHost } = source;
  const akey = password === undefined ? key : undefined;
  return { ...file, akey, host: extractHost, upstream: { ...upstream, auth: authOf(source) } };
}

function authOf(source: SourceConfig): string | object {
  const { auth } = source.upstream;
  if (auth.kind === 'always') {
    const { credentials } = auth;
    const isOwn = credentials.username === source.instance && credentials.password === source.password;
    return isOwn ? 'instance' : credentials;
  }
  const byEntry = { ignore: 'none', use: 'auto', require: 'entry' };
  return source.product === 'link' || source.product === 'list' ? byEntry[source.entryLogin] : auth.kind;
}

function fileListener(listener: ListenerConfig): object {
  const { tls } = listener;
  return { ...listener, tls: tls && { cert: tls.certFile, key: tls.keyFile } };
}

function fileFleet(fleet: FleetConfig): object {
  const { tls } = fleet;
  return { ...fleet, tls: tls && { ca: tls.caFile, cert: tls.certFile, key: tls.keyFile } };
}
