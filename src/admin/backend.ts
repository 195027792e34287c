/** What the admin server needs from the daemon: snapshots of its state, and commands. */
import type { LogLevel } from '../core/log-options.ts';
import type { RequestRecord } from '../core/request-record.ts';
import type { RequestFilter } from '../ledger/ledger.ts';
import type { UsageKind, UsageRow } from '../ledger/usage.ts';
import type { MemberJson, Reload, Report, SessionJson, SiteJson, Status } from './schemas.ts';

export interface AdminBackend {
  status(): Status;
  members(): readonly MemberJson[];
  memberCounts(): readonly ({ readonly source: string } & Readonly<Record<MemberJson['state'], number>>)[];
  sessions(): readonly SessionJson[];
  sites(): readonly SiteJson[];
  /** The spacing in ms of the sites that rules of `targets` name. */
  siteSpacings(): ReadonlyMap<string, number>;
  /** The latest client requests that match, newest first. */
  requests(filter: RequestFilter): readonly RequestRecord[];
  /** Undefined if nothing is known of the day. */
  usage(kind: UsageKind, day: string | undefined): Promise<UsageRow[] | undefined>;
  usageDays(): Promise<string[]>;
  pricesOf(source: string): { readonly perMember: number; readonly perGb: number };
  proxyAddress(): string | undefined;

  // The commands below return false if the member, source or session does not exist.
  evictMember(member: string): boolean;
  refillSource(source: string): boolean;
  pauseSource(source: string): boolean;
  resumeSource(source: string): boolean;
  rotateSession(session: string, closeTunnels: boolean): boolean;
  forgetSession(session: string): boolean;
  reportMember(report: Report): boolean;
  setLogLevel(level: LogLevel): void;
  /**
   * Reads the configuration file again and applies it. If an error is thrown, the previous configuration stays in
   * force.
   * @param answered - resolves when the client has received the answer. A reload that replaces the admin server waits
   * for this promise, because closing the server would cut off the answer.
   * @throws NoriaError bad-config, listen-failed, shutting-down
   */
  reload(answered: Promise<void>): Promise<ReloadOutcome>;
}

export interface ReloadOutcome extends Reload {
  readonly applied: boolean;
}
