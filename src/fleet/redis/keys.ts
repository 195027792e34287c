/**
 * The names of a fleet's keys in the store. All keys have the same hash tag, so that a script may use several of them
 * in a cluster. The names of instances and sessions are hashed, because they may contain a secret.
 */
import { createHash } from 'node:crypto';

export interface FleetKeys {
  /** Hash: the epoch (the identity of the data), the identity of the server, and the number of the last log entry. */
  readonly epoch: string;
  /** Stream: the log of facts. Entry N has the id `N-0`. */
  readonly log: string;
  /** String: the snapshot of the state. The log may lack the entries before the snapshot. */
  readonly snapshot: string;
  /** Hash: for each replica, the time of its last beat and the text of `BeatExchangeOptions.record`. */
  readonly replicas: string;
  /** Stream: the beats of the last few seconds. */
  readonly beats: string;
  /**
   * Hash: what beats have added since the snapshot. `uses:m:MEMBER` and `uses:s:SESSION` are numbers of uses.
   * `ends:m:MEMBER` is the end of life of the member. `used:s:SESSION` is the time of the last use and the TTL of the
   * session.
   */
  readonly uses: string;
  /** The temporary key of `noria check`. */
  readonly check: string;
  /** Hash: the pace of an instance, as a version and an entry (the last call and the queue). */
  pace(instance: string): string;
  /** Hash: a session as JSON, and its member. Expires with the session. */
  session(name: string): string;
  /** Set: hashes of the distinct IPs drawn in one day of the service. */
  day(source: string, day: number): string;
}

/** @param name - the name of the fleet; letters, digits, `-` and `_`. */
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
