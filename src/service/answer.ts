/**
 * The decoded answer of an extraction call, with noria's names for the fields. The client creates it, refill uses it.
 */
import type { Login } from '../core/login.ts';
import type { MemberProtocol } from '../core/protocol.ts';

/** One proxy of an answer, with a valid address and port. All other fields may be missing. */
export interface DrawnEntry {
  /** An IP literal in canonical form, without brackets. */
  readonly host: string;
  readonly port: number;
  /** Set for links, and for an entry of the free product that names its protocol. */
  readonly protocol?: MemberProtocol;
  /**
   * Remaining lifetime in ms from the sending of the request. `unknown`: the service sent -1. Absent: the entry has no
   * lifetime.
   */
  readonly lifetimeMs?: number | 'unknown';
  readonly exitIp?: string;
  /** The user name and password that the entry itself contains (links only). */
  readonly login?: Login;
  /** The location as free text: province, city, carrier. */
  readonly location?: string;
  readonly onlineMs?: number;
  /** The anonymity label of the free product, as received. */
  readonly level?: string;
  readonly area?: string;
  readonly serverId?: string;
  readonly lastScore?: number;
  readonly yesterdayScore?: number;
  /** This instance had not drawn the IP before today (short-pure). */
  readonly isNew?: boolean;
}

/** The counters of an answer. Each is a number of distinct IPs. */
export interface Quota {
  /** Still available today or in total: `surplus_count`, or `today_left_count` of short-pure. */
  readonly remaining?: number;
  /** IPs that are new in this answer: `update_count` or `dedup_count`. */
  readonly added?: number;
  /** IPs that were drawn before and have not expired: `active_count`. */
  readonly active?: number;
  /** IPs drawn today: `today_count`. */
  readonly today?: number;
}

export interface DrawAnswer {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text with masked secrets. Used only for the status and the log. */
  readonly message: string;
  /** The entries, at most 1,000. Empty unless the code is success. */
  readonly entries: readonly DrawnEntry[];
  /** The numbers of dropped entries, by `DropReason`. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly quota: Quota;
  /** Monotonic moment at which the request was sent: lifetimes count from here. */
  readonly sentAt: number;
  /** The time in ms from sending the request to the end of the answer. */
  readonly tookMs: number;
}
