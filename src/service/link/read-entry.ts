/** Reads one entry of a link's answer: checks and converts its parts. All functions are pure. */
import type { MemberProtocol } from '../../core/protocol.ts';
import { Secret } from '../../core/secret.ts';
import type { DrawnEntry } from '../answer.ts';
import type { DropReason, RefuseAddress } from '../decode.ts';
import { readEntryPort, readIp, readText } from '../fields.ts';
import { type EntryParts, findEntryParts, type PartsOptions, type RawEntry } from './entry-parts.ts';
import { type Lifetime, readLifetime } from './lifetime.ts';
import { DEFAULT_ZONE, type EntryLogin } from './rules.ts';

export interface EntryOptions extends PartsOptions {
  readonly login: EntryLogin;
  /** The configured protocol of all members. If undefined, an entry has the protocol that it names, else http. */
  readonly protocol: MemberProtocol | undefined;
  readonly refuses: RefuseAddress;
  /** The time at which the answer arrived, in epoch ms. */
  readonly wallAt: number;
}

interface ReadEntry {
  readonly entry: DrawnEntry;
  readonly parts: EntryParts;
}

/** The maximum length of a user name and of a password, by RFC 1929. */
const MAX_LOGIN_BYTES = 255;

/** Returns the entry, or the reason why noria drops it. */
export function readLinkEntry(raw: unknown, options: EntryOptions): ReadEntry | DropReason {
  const found = findEntryParts(raw, options);
  const host = found && readIp(found.address.ip);
  if (found === undefined || host === undefined) return 'address';
  const port = readEntryPort(found.address.port);
  if (port === undefined) return 'port';
  const refused = options.refuses(host, port);
  if (refused !== undefined) return refused;
  const lifetime = lifetimeOf(found, options);
  if (lifetime === 'expired') return 'expired';
  const login = options.login === 'ignore' ? undefined : loginOf(found);
  if (login === undefined && options.login === 'require') return 'credentials';
  const exitIp = readIp(found.exitIp);
  const location = readText(found.location.flatMap((part) => readText(part) ?? []).join(' '));
  const entry: DrawnEntry = {
    host,
    port,
    protocol: options.protocol ?? found.protocol ?? 'http',
    ...(lifetime === undefined ? {} : { lifetimeMs: lifetime }),
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(location === undefined ? {} : { location }),
    ...(login === undefined ? {} : { login }),
  };
  return { entry, parts: found.parts };
}

function lifetimeOf({ expiry }: RawEntry, { rules, wallAt }: EntryOptions): Lifetime {
  if (expiry === undefined) return undefined;
  const { value, as, since } = expiry;
  return readLifetime(value, as, { zone: rules.expiry?.zone ?? DEFAULT_ZONE, wallAt, since });
}

function loginOf({ username, password }: RawEntry): DrawnEntry['login'] {
  const [name, word] = [username, password].map(loginText);
  return name === undefined || word === undefined
    ? undefined
    : { username: name, password: new Secret(word) };
}

function loginText(raw: unknown): string | undefined {
  const text = typeof raw === 'number' ? String(raw) : raw;
  if (typeof text !== 'string' || text === '' || /\p{Cc}/u.test(text)) return undefined;
  return Buffer.byteLength(text) > MAX_LOGIN_BYTES ? undefined : text;
}
