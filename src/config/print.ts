/** Prints a configuration as YAML for `noria check`. */
import { Document } from 'yaml';
import { z } from 'zod';
import { formatHostPort } from '../core/host-port.ts';
import type { Config, SourceConfig } from './config.ts';
import { inputOf } from './keys.ts';
import { isScalar } from './scalars.ts';
import { SCHEMA } from './schema.ts';

/**
 * The text has all defaults, masked secrets and absolute paths. Keys without a value are left out, except sections
 * that are `off`.
 */
export function printConfig(config: Config): string {
  const { sources, listeners, fleet } = config;
  const written = write(SCHEMA, {
    ...config,
    sources: sources.map(fileSource),
    listeners: listeners.map((listener) => ({ ...listener, tls: listener.tls?.files })),
    fleet: fleet && { ...fleet, tls: fleet.tls?.files },
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
  const at = (key: string) => Reflect.get(value, key) ?? Reflect.get(value, `${key}Ms`);
  const entries =
    input instanceof z.ZodObject
      ? Object.entries(input.shape).map(([key, inner]) => [key, write(inner, at(key))] as const)
      : Object.entries(value).map(([key, inner]) => [key, String(inner)] as const);
  return Object.fromEntries(entries.filter(([, inner]) => inner !== undefined));
}

/** The source as in a file: without what noria derives from its other keys. */
function fileSource(source: SourceConfig): object {
  const { count, params, upstream } = source;
  const derived = { instance: undefined, baseUrl: undefined, intervalMs: undefined, params: undefined };
  const file = { ...source, ...derived };
  const asked = { ...(count !== undefined && { count }), ...params };
  const access = { ...upstream, auth: source.product === 'gateway' ? source.account : authOf(source) };
  switch (source.product) {
    case 'gateway': {
      const address = formatHostPort(source.host, source.port);
      return { ...file, address, host: undefined, upstream: access };
    }
    case 'list':
      return { ...file, upstream: access };
    case 'link':
      return { ...file, intervalMs: source.intervalMs, params: asked, upstream: access };
    default: {
      const akey = source.password === undefined ? source.key : undefined;
      return { ...source, params: asked, akey, host: source.extractHost, upstream: access };
    }
  }
}

function authOf(source: SourceConfig): string | object {
  const { auth } = source.upstream;
  if (auth.kind === 'always') {
    const { credentials } = auth;
    const isOwn = credentials.username === source.instance && credentials.password === source.password;
    return isOwn ? 'instance' : credentials;
  }
  const byEntry = { ignore: 'none', use: 'auto', require: 'entry' };
  return source.product === 'link' || source.product === 'list' ? byEntry[source.login] : auth.kind;
}
