/** Checks for `noria check` whether a store can serve a fleet. Leaves nothing in the store. */
import type { Clock } from '../../core/clock.ts';
import { hasCode, NoriaError } from '../../core/faults.ts';
import { systemRandom } from '../../core/random.ts';
import type { Timekeeper } from '../../state/moment.ts';
import { readReplicas } from './beat-exchange.ts';
import {
  openPrimary,
  type StoreAddress,
  type StoreClient,
  type StoreConnection,
  StoreRefusal,
} from './connection.ts';
import { openFleetStore, peerWarnings, readInstance } from './read-fleet.ts';
import type { FleetInstance } from './seal.ts';
import { type FleetKeys, type FleetStore, fleetKeys, listOf, NO_IDENTITY, STORE_FORMAT } from './store.ts';

type StoreInfo = Readonly<Record<string, string>>;

export interface StoreReport {
  readonly version: string | undefined;
  readonly isReachable: boolean;
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

const CONNECT_DEADLINE_MS = 5_000;
const MIN_REDIS_VERSION = 7;
const FULL_SHARE = 0.8;
const SLOW_MS = 10;
const PINGS = 5;

/** The commands that noria sends directly. IN_SCRIPTS lists the commands that its scripts send. */
const SENT = ['EVAL', 'EVALSHA', 'XREAD', 'PING', 'ROLE', 'SCAN', 'SELECT'];
const IN_SCRIPTS = [
  ...['DEL', 'EXISTS', 'HDEL', 'HGET', 'HGETALL', 'HINCRBY', 'HKEYS', 'HMGET', 'HSCAN', 'HSET', 'INFO'],
  ...['PEXPIRE', 'SADD', 'SCARD', 'TIME', 'XADD', 'XLEN', 'XRANGE', 'XREVRANGE', 'XTRIM', 'ZADD'],
  ...['ZRANGEBYSCORE', 'ZREM'],
];

export function aclLine(name: string, username: string): string {
  const commands = [...SENT, ...IN_SCRIPTS].map((command) => `+${command.toLowerCase()}`);
  return `ACL SETUSER ${username} on >PASSWORD resetkeys ~{noria:${name}}:* resetchannels -@all ${commands.join(' ')}`;
}

/** @param name - the name of the fleet. @param own - of this noria: what the data of the fleet is checked with; absent: does not read it. */
export async function inspectStore(
  address: StoreAddress,
  name: string,
  clock: Clock,
  own?: {
    /** The name of this noria in the fleet; absent: it gets a random one when it starts. */
    readonly replica?: string | undefined;
    readonly instances: readonly FleetInstance[];
    readonly refuses: (host: string, port: number) => string | undefined;
    readonly timekeeper: Timekeeper;
  },
): Promise<StoreReport> {
  const report = await inspectServer(address, name, clock);
  if (report.errors.length > 0 || own === undefined) return report;
  const { instances, refuses, timekeeper } = own;
  const warnings: string[] = [...report.warnings];
  const onUnreadable = (where: string, why: string) =>
    warnings.push(`noria ignores ${where} in the store of the fleet: ${why}`);
  let store: FleetStore | undefined;
  try {
    store = await openFleetStore({ address, name, clock, random: systemRandom, timekeeper });
    for (const instance of instances) await readInstance(store, instance, onUnreadable, refuses);
    const others = (await readReplicas(store)).filter((each) => each.name !== own.replica);
    warnings.push(...peerWarnings(instances, others));
    return { ...report, warnings };
  } catch (error) {
    return failedReport(error, address);
  } finally {
    await store?.close();
  }
}

async function inspectServer(address: StoreAddress, name: string, clock: Clock): Promise<StoreReport> {
  let client: StoreClient;
  try {
    const { signal } = new AbortController();
    client = await openPrimary(address, { clock, deadlineMs: CONNECT_DEADLINE_MS, signal });
  } catch (error) {
    return failedReport(error, address);
  }
  try {
    const acl = aclLine(name, address.server.login.username ?? 'noria');
    return await inspect(client, { clock, keys: fleetKeys(name), acl });
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

const NO_CLUSTER = 'use a store without cluster mode (cluster-enabled no)';
const CONNECTION_ADVICE: readonly (readonly [text: RegExp, advice: string])[] = [
  [/without any password/, 'the store has no password: remove the password from the URL'],
  [/WRONGPASS|NOAUTH|invalid username-password/i, 'check user name and password in the URL'],
  [/cluster mode/, NO_CLUSTER],
  [/DB index/, 'check the database number in the URL'],
  [/Unknown RESP type/, 'another kind of server listens there: check host and port in the URL'],
  [/LOADING/, 'the store still loads its data: wait until it has started, and run noria check again'],
  [
    /certificate required|handshake failure/i,
    'the store asks for a client certificate: set fleet.tls.cert and fleet.tls.key',
  ],
  [/certificate|altname/i, 'check fleet.tls.ca, and that the certificate names the host of the URL'],
  [/Sentinel/, 'check fleet.sentinel, and that the Sentinels can be reached from this machine'],
];
const OTHER_ADVICE =
  'check host and port in the URL, that the store runs, and that this machine can reach it';
const TRY_TLS = 'if the store requires TLS, begin the URL with rediss://';
const TRY_PLAIN = 'if the store has no TLS on this port, begin the URL with redis://';
/** With TLS 1.3, the store asks after the handshake. If noria has written by then, it gets a reset and not the alert. */
const TRY_CERTIFICATE = 'if the store asks for a client certificate, set fleet.tls.cert and fleet.tls.key';
const TLS_MISMATCH =
  /no connection within|closed|EPROTO|EPIPE|ECONNRESET|wrong version number|packet length/i;

function connectionProblem(error: unknown, { server }: StoreAddress): string {
  if (!(error instanceof NoriaError)) throw error;
  const message = error.message.replace(/\.$/, '');
  const [, advice = OTHER_ADVICE] = CONNECTION_ADVICE.find(([text]) => text.test(message)) ?? [];
  if (!TLS_MISMATCH.test(message)) return `${message}; ${advice}`;
  if (server.tls === undefined) return `${message}; ${advice}; ${TRY_TLS}`;
  return [message, advice, TRY_PLAIN, ...(server.tls.cert === undefined ? [TRY_CERTIFICATE] : [])].join('; ');
}

async function inspect(
  client: StoreClient,
  { clock, keys, acl }: { readonly clock: Clock; readonly keys: FleetKeys; readonly acl: string },
): Promise<StoreReport> {
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
  } else if (info['cluster_enabled'] === '1') {
    errors.push(`the store is a node of a cluster, and noria needs one server with all keys; ${NO_CLUSTER}`);
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
  return {
    version,
    isReachable: true,
    errors,
    warnings: [...findRisks(info), ...(errors.length === 0 ? await slowness(client, clock) : [])],
  };
}

async function slowness(client: StoreClient, clock: Clock): Promise<string[]> {
  const times: number[] = [];
  while (times.length < PINGS) {
    const askedAt = clock.monotonic();
    await client.call(['PING']);
    times.push(clock.monotonic() - askedAt);
  }
  const answerMs = Math.round(Math.min(...times));
  if (answerMs <= SLOW_MS) return [];
  return [
    `the store answered after ${answerMs} ms; a new session waits at most 30 ms for it, so use a store within ${SLOW_MS} ms`,
  ];
}

function parseInfo(text: string): StoreInfo {
  const lines = text.split('\r\n').map((line) => /^([^#:][^:]*):(.*)$/.exec(line));
  return Object.fromEntries(lines.flatMap((line) => (line ? [[line[1], line[2]]] : [])));
}

function evictionWarning({ maxmemory, maxmemory_policy: policy }: StoreInfo): string | undefined {
  if (maxmemory === undefined || maxmemory === '0') return undefined;
  if (policy === undefined || policy === 'noeviction') return undefined;
  return `the store has maxmemory-policy ${policy}, so it deletes data of the fleet when its memory is full, such as the pace, the members and the sessions; set maxmemory-policy to noeviction`;
}

function fullness({ maxmemory, used_memory: used }: StoreInfo): string[] {
  const share = Number(used) / Number(maxmemory);
  if (!(Number(maxmemory) > 0) || !(share > FULL_SHARE)) return [];
  return [
    `the memory of the store is ${Math.round(share * 100)} % full; above 100 % it refuses writes, and no noria draws; raise maxmemory`,
  ];
}

export async function readStoreWarnings(connection: StoreConnection): Promise<string[]> {
  try {
    const info = parseInfo(String(await connection.call(['INFO', 'memory'])));
    return [evictionWarning(info) ?? [], fullness(info)].flat();
  } catch (error) {
    // handled: this function only looks for warnings; `noria check` reports the error
    if (error instanceof StoreRefusal || error instanceof NoriaError) return [];
    throw error;
  }
}

function findRisks(info: StoreInfo): string[] {
  const full = fullness(info);
  if (info['aof_enabled'] !== '0') return full;
  return [
    ...full,
    'the store has no append-only file: after a restart of the store, no noria draws for one interval plus the duration of one call; set appendonly yes in the store',
  ];
}

async function readInfo(client: StoreClient, acl: string): Promise<StoreInfo | string> {
  try {
    return parseInfo(String(await client.call(['INFO'])));
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

/** Returns the first other failure, and the commands for which the user lacks permission. */
const TRY_LUA = `
-- HSET comes first: a script that has written already may go on although the memory is full
local key, missing = KEYS[1], {}
local tries = {
  { 'HSET', key, 'a', '1' }, { 'EXISTS', key }, { 'PEXPIRE', key, 60000 }, { 'HGET', key, 'a' }, { 'HMGET', key, 'a' },
  { 'HGETALL', key }, { 'HKEYS', key }, { 'HSCAN', key, '0' },
  { 'HINCRBY', key, 'a', 1 }, { 'HDEL', key, 'a' }, { 'SADD', key, 'a' }, { 'SCARD', key }, { 'DEL', key },
  { 'XADD', key, '1-0', 'a', '1' }, { 'XLEN', key }, { 'XRANGE', key, '-', '+' }, { 'XREVRANGE', key, '+', '-' },
  { 'XTRIM', key, 'MAXLEN', 0 }, { 'DEL', key }, { 'ZADD', key, 1, 'a' },
  { 'ZRANGEBYSCORE', key, '-inf', '+inf' }, { 'ZREM', key, 'a' }, { 'INFO', 'server' }, { 'TIME' },
  { 'DEL', key },
}
local seen, failed = {}, ''
for _, command in ipairs(tries) do
  local reply = redis.pcall(unpack(command))
  local refused = type(reply) == 'table' and reply.err and
    (string.find(reply.err, 'NOPERM') or string.find(reply.err, "can't run") or string.find(reply.err, 'ACL failure'))
  if refused and not seen[command[1]] then
    seen[command[1]] = true
    missing[#missing + 1] = command[1]
  elseif not refused and type(reply) == 'table' and reply.err and failed == '' then
    failed = reply.err
  end
end
return { failed, missing }
`;

const KEY_REFUSED = /^NOPERM.*\bkeys?\b/;

async function findMissingPermissions(client: StoreClient, keys: FleetKeys, acl: string): Promise<string[]> {
  const missing: string[] = [];
  const failures = new Set<string>();
  let isKeyRefused = false;
  const attempt = async (name: string, command: readonly string[]) => {
    try {
      return await client.call(command);
    } catch (error) {
      if (!(error instanceof StoreRefusal)) throw error;
      if (KEY_REFUSED.test(error.message)) isKeyRefused = true;
      else if (error.message.startsWith('NOPERM')) missing.push(name);
      else if (!error.message.startsWith('NOSCRIPT')) failures.add(error.message);
      return null;
    }
  };
  const inScripts = await attempt('EVAL', ['EVAL', TRY_LUA, '1', keys.check]);
  const [failed, missed] = listOf(inScripts);
  missing.push(...listOf(missed).map(String));
  if (typeof failed === 'string' && failed !== '') failures.add(failed);
  await attempt('EVALSHA', ['EVALSHA', '0'.repeat(40), '0']);
  await attempt('XREAD', ['XREAD', 'STREAMS', keys.check, '0-0']);
  const refused = [
    ...(missing.length === 0 ? [] : [`run ${missing.join(', ')}`]),
    ...(isKeyRefused ? ['use the keys of this fleet'] : []),
  ];
  const refusing = [...failures].map(
    (failure) =>
      `the store does not accept what noria writes: ${failure}; no noria of the fleet draws until it does`,
  );
  if (refused.length === 0) return refusing;
  return [
    ...refusing,
    `the user of the store may not ${refused.join(' or ')}; give it the permissions that noria needs: ${acl}`,
  ];
}

async function findFormatProblem(client: StoreClient, keys: FleetKeys): Promise<string[]> {
  const format = Number(await client.call(['HGET', keys.epoch, 'format']));
  if (format <= STORE_FORMAT) return [];
  return [
    `the data in the store has format ${format}, and this noria knows formats up to ${STORE_FORMAT}; update this noria`,
  ];
}
