/**
 * What one call of the extraction service came to, in noria's own words: wire names end in `decode`.
 *
 * Shared by the client, which makes it, and refill, which acts on it.
 */
import type { MemberProtocol } from '../core/protocol.ts';

/** One proxy of an answer, checked: an address and a port that can be used. Everything else may be missing. */
export interface DrawnEntry {
  /** An IP literal in canonical form, without brackets. */
  readonly host: string;
  readonly port: number;
  /** Only where the entry itself says it (free product). */
  readonly protocol?: MemberProtocol;
  /**
   * What is left of its life, ms, counted from the sending of the request. `unknown`: the service says that nobody can
   * know (-1). Absent: the service did not tell.
   */
  readonly lifetimeMs?: number | 'unknown';
  readonly exitIp?: string;
  /** Free text: province, city, carrier. */
  readonly location?: string;
  readonly onlineMs?: number;
  /** Anonymity label of the free product, as it came. */
  readonly level?: string;
  readonly area?: string;
  readonly serverId?: string;
  readonly lastScore?: number;
  readonly yesterdayScore?: number;
  /** A distinct IP that this instance had not drawn today (pure edition). */
  readonly isNew?: boolean;
}

/** The counters of an answer, wherever they stood in it. All are numbers of distinct IPs. */
export interface Quota {
  /** Left for today, or in all: `surplus_count`, or `today_left_count` of the pure edition. */
  readonly remaining?: number;
  /** New with this call: `update_count` or `dedup_count`. */
  readonly added?: number;
  /** Drawn lately and alive: `active_count`. */
  readonly active?: number;
  /** Drawn today: `today_count`. */
  readonly today?: number;
}

export interface DrawAnswer {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text: for status and log only. Secrets are masked in it. */
  readonly message: string;
  /** Empty unless the code is success. At most 1,000. */
  readonly entries: readonly DrawnEntry[];
  /** Entries that were dropped, by reason: `address`, `port`, `private`, `own`, `protocol`, `excess`. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly quota: Quota;
  /** Monotonic moment at which the request was sent: lifetimes count from here. */
  readonly sentAt: number;
  /** Ms from sending to the end of the answer. */
  readonly tookMs: number;
}
