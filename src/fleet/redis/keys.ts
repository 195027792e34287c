/**
 * The key names of a fleet. All have the same hash tag, so that one script may use several of them in a cluster. Names of
 * instances and sessions are hashed, because they may contain a secret: the address of a service, or the name of a session.
 */
import { createHash } from 'node:crypto';

export interface FleetKeys {
  /** Hash: the identity of the server, the identity of the data (epoch), and the number of the last log entry. */
  readonly epoch: string;
  /** Stream: the log of facts. Entry N has the id `N-0`. */
  readonly log: string;
  /** String: the snapshot of the state. Log entries before the snapshot may be trimmed. */
  readonly snapshot: string;
  /** Hash: for each replica its version, its number of clients and the time of its last beat. */
  readonly replicas: string;
  /** Stream: the beats of the last seconds. */
  readonly beats: string;
  /**
   * Hash of the sums that beats change: `uses:m:MEMBER`, `ends:m:MEMBER`, `uses:s:SESSION` and `used:s:SESSION` (last use and
   * TTL).
   */
  readonly uses: string;
  /** The temporary key that `noria check` uses. */
  readonly check: string;
  /** Hash of an instance: the last call, the queue and the version of the entry. */
  pace(instance: string): string;
  /** Hash of a session: its text and its member. Expires with the session. */
  session(name: string): string;
  /** Set: the distinct IPs drawn in one day of the service. */
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
