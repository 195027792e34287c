/**
 * The names of a fleet's keys. All have one hash tag, so that one script may use any of them in a cluster, too.
 *
 * Instances and sessions are named by hashes: the address of a service and the name of a session may contain a secret.
 */
import { createHash } from 'node:crypto';

export interface FleetKeys {
  /** Hash: the identity of the store and of its data, and the number of the last entry of the log. */
  readonly epoch: string;
  /** Stream: the facts. The id of entry N is `N-0`. */
  readonly log: string;
  /** String: the state at a position of the log, before which the log may be trimmed. */
  readonly snapshot: string;
  /** Hash: replica to its version, clients and the time of its last beat. */
  readonly replicas: string;
  /** Stream: the beats of the last seconds. */
  readonly beats: string;
  /** Hash of what beats have added: `uses:m:MEMBER`, `ends:m:MEMBER`, `uses:s:SESSION` and `used:s:SESSION` (last use and TTL). */
  readonly uses: string;
  /** Used by `noria check` and deleted at once. */
  readonly check: string;
  /** Hash: the last call, the queue and the version of the entry. */
  pace(instance: string): string;
  /** Hash: a session and its member, until it ends. */
  session(name: string): string;
  /** Set: the distinct IPs drawn on one day of the service. */
  day(source: string, day: number): string;
}

/** @param name - letters, digits, `-` and `_`. */
export function fleetKeys(name: string): FleetKeys {
  const prefix = `{noria:${name}}`;
  return {
    epoch: `${prefix}:epoch`,
    log: `${prefix}:log`,
    snapshot: `${prefix}:snapshot`,
    replicas: `${prefix}:replicas`,
    beats: `${prefix}:beats`,
    uses: `${prefix}:uses`,
    check: `${prefix}:check`,
    pace: (instance) => `${prefix}:pace:${hashOf(instance)}`,
    session: (session) => `${prefix}:session:${hashOf(session)}`,
    day: (source, day) => `${prefix}:day:${hashOf(source)}:${day}`,
  };
}

const HASH_CHARACTERS = 22;

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, HASH_CHARACTERS);
}
