/** The decoded answer of an extraction call, with noria's names for the fields. */

import type { MemberProtocol } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';

/** One proxy of an answer. Its address and port are always valid and present; all other fields may be missing. */
export interface DrawnEntry {
  /** An IP literal in canonical form, without brackets. */
  readonly host: string;
  readonly port: number;
  /**
   * The protocol of the proxy. Links: always present. Free product: present if the entry names its protocol. All other
   * products: absent.
   */
  readonly protocol?: MemberProtocol;
  /**
   * The remaining lifetime in ms at the moment when noria sent the request. `unknown`: the service sent -1. Absent: the
   * service sent no lifetime.
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
  /** Whether the instance drew this IP for the first time today (`is_new_dedup`, only `short-pure`). */
  readonly isNew?: boolean;
}

/** The numbers of IPs that an answer reports. Each counts distinct IPs. */
export interface Quota {
  /**
   * How many IPs the instance may still draw, today or in total: `surplus_count`; for `short-pure`, `today_left_count`.
   */
  readonly remaining?: number;
  /** How many IPs of this answer are new: `update_count`; for `short-pure`, `dedup_count`. */
  readonly added?: number;
  /** How many IPs from earlier calls have not expired: `active_count`. */
  readonly active?: number;
  /** How many IPs the instance drew today: `today_count`. */
  readonly today?: number;
}

export interface DrawAnswer {
  /** The service's code, e.g. `10001`. */
  readonly code: string;
  /** The service's own text with masked secrets, for the status and the log. */
  readonly message: string;
  /** The entries, at most 1,000. Empty unless the code is success. */
  readonly entries: readonly DrawnEntry[];
  /** The number of entries that noria dropped, by `DropReason`. */
  readonly dropped: Readonly<Record<string, number>>;
  readonly quota: Quota;
  /** The monotonic moment at which noria sent the request. The lifetimes of the entries begin at this moment. */
  readonly sentAt: number;
}
