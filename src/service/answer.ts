/** The decoded answer of an extraction call, with noria's names for the fields. */

import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

/** One proxy of an answer, with a valid address and port. The answer may lack all other fields. */
export interface DrawnEntry {
  /** An IP literal in canonical form, without brackets. */
  readonly host: string;
  readonly port: number;
  /**
   * The protocol of the proxy. Always present for links. For the free product, present if the entry names its protocol. Absent
   * for other products.
   */
  readonly protocol?: MemberProtocol;
  /**
   * The remaining lifetime in ms, counted from the moment at which noria sent the request. `unknown`: the service
   * sent -1. Absent: the service sent no lifetime.
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
  /** Whether this instance draws the IP for the first time today (`is_new_dedup`, only `short-pure`). */
  readonly isNew?: boolean;
}

/** The counters of an answer. Each counts distinct IPs. */
export interface Quota {
  /**
   * IPs that the instance may still draw today or in total: `surplus_count`, or `today_left_count` of `short-pure`.
   */
  readonly remaining?: number;
  /** IPs that are new in this answer: `update_count` or `dedup_count`. */
  readonly added?: number;
  /** IPs that were drawn before and have not expired: `active_count`. */
  readonly active?: number;
  /** IPs that the instance drew today: `today_count`. */
  readonly today?: number;
}

export interface DrawAnswer {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text with masked secrets, for the status and the log. */
  readonly message: string;
  /** The entries, at most 1,000. Empty unless the code is success. */
  readonly entries: readonly DrawnEntry[];
  /** How many entries noria dropped, by `DropReason`. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly quota: Quota;
  /** The monotonic moment at which noria sent the request. Lifetimes count from here. */
  readonly sentAt: number;
  /** The time in ms from sending the request to the end of the answer. */
  readonly tookMs: number;
}
