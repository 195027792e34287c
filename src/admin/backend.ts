/** The interface between admin server and daemon: snapshots and commands. The daemon implements it. */
import type { LogLevel } from '../core/log-options.ts';
import type { MemberJson, Reload, Report, SessionJson, Status } from './schemas.ts';

export interface AdminBackend {
  status(): Status;
  members(): readonly MemberJson[];
  /** The numbers of members of each source by state. Cheap for any number of members. */
  memberCounts(): readonly MemberCounts[];
  sessions(): readonly SessionJson[];
  /** The `host:port` under which clients on this machine reach the first HTTP listener. */
  proxyAddress(): string | undefined;

  // Commands. The result is false when the member, source or session does not exist.
  evictMember(member: string): boolean;
  refillSource(source: string): boolean;
  pauseSource(source: string): boolean;
  resumeSource(source: string): boolean;
  rotateSession(session: string, closeTunnels: boolean): boolean;
  forgetSession(session: string): boolean;
  reportMember(report: Report): boolean;
  setLogLevel(level: LogLevel): void;
  /**
   * Reads the configuration file again and applies it.
   *
   * @param answered - resolves when the client has its answer. A reload that replaces the admin server waits for it.
   * @throws NoriaError bad-config, listen-failed, shutting-down. The previous configuration stays in force.
   */
  reload(answered: Promise<void>): Promise<ReloadOutcome>;
}

export interface ReloadOutcome extends Reload {
  /** False: the reload replaces the admin server, so noria applies it after the response to this request. */
  readonly applied: boolean;
}

export interface MemberCounts extends Readonly<Record<MemberJson['state'], number>> {
  readonly source: string;
}
