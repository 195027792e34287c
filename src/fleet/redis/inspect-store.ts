/** Checks for `noria check` whether a store can serve a fleet. Leaves nothing in the store. */
import type { Clock } from '../../core/clock.ts';
import { hasCode, NoriaError } from '../../core/faults.ts';
import { STORE_FORMAT } from './epoch.ts';
import { evictionWarning, parseInfo, type StoreInfo } from './evictions.ts';
import { NO_IDENTITY } from './fleet-store.ts';
import { type FleetKeys, fleetKeys } from './keys.ts';
import { listOf } from './log-reader.ts';
import { openPrimary, type StoreAddress } from './store-address.ts';
import { type StoreClient, StoreRefusal } from './store-client.ts';
import { COMMAND_DEADLINE_MS } from './store-connection.ts';

export interface StoreReport {
  /** The version of the store, for example `Valkey 8.1.0` or `Redis 7.0.15`; undefined if unknown. */
  readonly version: string | undefined;
  /** Whether the store answered. */
  readonly isReachable: boolean;
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

const CONNECT_DEADLINE_MS = 5_000;
const MIN_REDIS_VERSION = 7;

/** The commands that noria sends directly. IN_SCRIPTS lists the commands that its scripts send. */
const SENT = ['EVAL', 'EVALSHA', 'XREAD', 'PING', 'ROLE', 'SELECT'];
const IN_SCRIPTS = [
  ...['DEL', 'EXISTS', 'GET', 'HDEL', 'HGET', 'HGETALL', 'HINCRBY', 'HMGET', 'HSET', 'INFO', 'PEXPIRE'],
  ...['SADD', 'SCARD', 'SET', 'TIME', 'XADD', 'XRANGE', 'XREVRANGE', 'XTRIM'],
];

/**
 * Returns the store command that gives a user exactly the permissions that noria needs.
 * @param name - the name of the fleet.
 */
export function aclLine(name: string, username: string): string {
  const commands = [...SENT, ...IN_SCRIPTS].map((command) => `+${command.toLowerCase()}`);
  return `ACL SETUSER ${username} on >PASSWORD resetkeys ~{noria:${name}}:* resetchannels -@all ${commands.join(' ')}`;
}

/** @param name - the name of the fleet. */
export async function inspectStore(address: StoreAddress, name: string, clock: Clock): Promise<StoreReport> {
  let client: StoreClient;
  try {
    const { signal } = new AbortController();
    client = await openPrimary(address, { clock, deadlineMs: CONNECT_DEADLINE_MS, signal });
  } catch (error) {
    return failedReport(error, address);
  }
  try {
    return await inspect(client, fleetKeys(name), aclLine(name, address.server.login.username ?? 'noria'));
  } catch (error) {
    return failedReport(error, address);
  } finally {
    client.close();
  }
}

function failedReport(error: unknown, address: StoreAddress): StoreReport {
  const isRefusal = error instanceof StoreRefusal;
  const problem = isRefusal ? error.message : connectionProblem(error, address);
  const isReachable = isRefusal || hasCode(error, 'fleet-store-unusable');
  return { version: undefined, isReachable, errors: [problem], warnings: [] };
}

/** What to do about a failed connection. The first entry whose pattern matches the error applies. */
const CONNECTION_ADVICE: readonly (readonly [text: RegExp, advice: string])[] = [
  [/without any password/, 'the store has no password: remove the password from the URL'],
  [/WRONGPASS|NOAUTH|invalid username-password/i, 'check user name and password in the URL'],
  [/DB index/, 'check the database number in the URL'],
  [/Unknown RESP type/, 'another kind of server listens there: check host and port in the URL'],
  [/certificate|altname/i, 'check fleet.tls.ca, and that the certificate names the host of the URL'],
  [/Sentinel/, 'check fleet.sentinel, and that the Sentinels can be reached from this machine'],
];
const OTHER_ADVICE =
  'check host and port in the URL, that the store runs, and that this machine can reach it';
const TRY_TLS = 'if the store requires TLS, begin the URL with rediss://';
const TRY_PLAIN = 'if the store has no TLS on this port, begin the URL with redis://';
/** Matches errors that occur if only one of noria and the store uses TLS. */
const TLS_MISMATCH = /no connection within|closed|EPROTO|ECONNRESET|wrong version number|packet length/i;

function connectionProblem(error: unknown, { server }: StoreAddress): string {
  if (!(error instanceof NoriaError)) throw error;
  const message = error.message.replace(/\.$/, '');
  const [, advice = OTHER_ADVICE] = CONNECTION_ADVICE.find(([text]) => text.test(message)) ?? [];
  if (!TLS_MISMATCH.test(message)) return `${message}; ${advice}`;
  return `${message}; ${advice}; ${server.tls === undefined ? TRY_TLS : TRY_PLAIN}`;
}

async function inspect(client: StoreClient, keys: FleetKeys, acl: string): Promise<StoreReport> {
  const info = await readInfo(client, acl);
  if (typeof info === 'string')
    return { version: undefined, isReachable: true, errors: [info], warnings: [] };
  const { version, isOld } = versionOf(info);
  if (isOld) {
    const error = `the store is ${version}, and noria needs Valkey, or Redis 7.0 or later`;
    return { version, isReachable: true, errors: [error], warnings: [] };
  }
  const errors: string[] = [];
  if (info['run_id'] === undefined || info['master_replid'] === undefined) {
    errors.push(`the store cannot be used: ${NO_IDENTITY}`);
  } else if (info['role'] !== 'master') {
    const primary = `${info['master_host']}:${info['master_port']}`;
    errors.push(
      `the store is a read-only replica of ${primary}; use the address of the primary, or Sentinels`,
    );
  } else {
    errors.push(...(await findMissingPermissions(client, keys, acl)));
    if (errors.length === 0) errors.push(...(await findFormatProblem(client, keys)));
  }
  const warning = evictionWarning(info);
  if (warning !== undefined) errors.push(warning);
  return { version, isReachable: true, errors, warnings: findRisks(info) };
}

/**
 * Warns about a store without an append-only file, which may lose data in a restart. The fleet continues after a loss,
 * but its next draws are delayed.
 */
function findRisks(info: StoreInfo): string[] {
  if (info['aof_enabled'] !== '0') return [];
  return [
    'the store has no append-only file: after a restart of the store, no noria draws for one interval plus the duration of one call; set appendonly yes in the store',
  ];
}

/** Returns the fields of INFO, or a problem as text if the store refuses INFO. */
async function readInfo(client: StoreClient, acl: string): Promise<StoreInfo | string> {
  try {
    return parseInfo(String(await client.call(['INFO'], COMMAND_DEADLINE_MS)));
  } catch (error) {
    if (!(error instanceof StoreRefusal)) throw error;
    if (error.message.startsWith('NOAUTH')) return 'the store needs a password; add the password to the URL';
    return `${error.message}; give the user the permissions that noria needs: ${acl}`;
  }
}

function versionOf(info: StoreInfo): {
  readonly version: string;
  readonly isOld: boolean;
} {
  const { valkey_version: valkey, redis_version: redis = 'of an unknown version' } = info;
  if (valkey !== undefined) return { version: `Valkey ${valkey}`, isOld: false };
  return { version: `Redis ${redis}`, isOld: Number.parseInt(redis, 10) < MIN_REDIS_VERSION };
}

/**
 * Tries the commands of noria's scripts on a temporary key. Returns the names of the commands for which the user lacks
 * permission.
 */
const TRY_LUA = `
local key, missing = KEYS[1], {}
local tries = {
  { 'EXISTS', key }, { 'GET', key }, { 'SET', key, '1' }, { 'PEXPIRE', key, 60000 }, { 'DEL', key },
  { 'HSET', key, 'a', '1' }, { 'HGET', key, 'a' }, { 'HMGET', key, 'a' }, { 'HGETALL', key },
  { 'HINCRBY', key, 'a', 1 }, { 'HDEL', key, 'a' }, { 'SADD', key, 'a' }, { 'SCARD', key }, { 'DEL', key },
  { 'XADD', key, '1-0', 'a', '1' }, { 'XRANGE', key, '-', '+' }, { 'XREVRANGE', key, '+', '-' },
  { 'XTRIM', key, 'MAXLEN', 0 }, { 'INFO', 'server' }, { 'TIME' }, { 'DEL', key },
}
local seen = {}
for _, command in ipairs(tries) do
  local reply = redis.pcall(unpack(command))
  local refused = type(reply) == 'table' and reply.err and
    (string.find(reply.err, 'NOPERM') or string.find(reply.err, "can't run") or string.find(reply.err, 'ACL failure'))
  if refused and not seen[command[1]] then
    seen[command[1]] = true
    missing[#missing + 1] = command[1]
  end
end
return missing
`;

const KEY_REFUSED = /^NOPERM.*\bkeys?\b/;

async function findMissingPermissions(client: StoreClient, keys: FleetKeys, acl: string): Promise<string[]> {
  const missing: string[] = [];
  let isKeyRefused = false;
  const attempt = async (name: string, command: readonly string[]) => {
    try {
      return await client.call(command, COMMAND_DEADLINE_MS);
    } catch (error) {
      if (!(error instanceof StoreRefusal)) throw error;
      if (KEY_REFUSED.test(error.message)) isKeyRefused = true;
      else if (error.message.startsWith('NOPERM')) missing.push(name);
      return null; // handled: only NOPERM shows that a permission is missing
    }
  };
  const inScripts = await attempt('EVAL', ['EVAL', TRY_LUA, '1', keys.check]);
  missing.push(...listOf(inScripts).map(String));
  await attempt('EVALSHA', ['EVALSHA', '0'.repeat(40), '0']);
  await attempt('XREAD', ['XREAD', 'STREAMS', keys.check, '0-0']);
  const refused = [
    ...(missing.length === 0 ? [] : [`run ${missing.join(', ')}`]),
    ...(isKeyRefused ? ['use the keys of this fleet'] : []),
  ];
  if (refused.length === 0) return [];
  return [
    `the user of the store may not ${refused.join(' or ')}; give it the permissions that noria needs: ${acl}`,
  ];
}

async function findFormatProblem(client: StoreClient, keys: FleetKeys): Promise<string[]> {
  const format = Number(await client.call(['HGET', keys.epoch, 'format'], COMMAND_DEADLINE_MS));
  if (format <= STORE_FORMAT) return [];
  return [
    `the data in the store has format ${format}, and this noria knows formats up to ${STORE_FORMAT}; update this noria`,
  ];
}
