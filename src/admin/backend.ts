/** What the admin server shows and steers: snapshots to read, verbs to call, nothing deeper. The daemon provides it. */
import type { LogLevel } from '../core/log.ts';
import type { MemberJson, Report, SessionJson, Status } from './schemas.ts';

export interface MemberCounts extends Readonly<Record<MemberJson['state'], number>> {
  readonly source: string;
}

export interface AdminBackend {
  status(): Status;
  members(): readonly MemberJson[];
  /** How many members of each source are in which state. Cheap, however many there are. */
  memberCounts(): readonly MemberCounts[];
  sessions(): readonly SessionJson[];
  /** Each verb says whether there was such a thing. */
  evictMember(member: string): boolean;
  refillSource(source: string): boolean;
  pauseSource(source: string): boolean;
  resumeSource(source: string): boolean;
  rotateSession(session: string, closeTunnels: boolean): boolean;
  forgetSession(session: string): boolean;
  reportMember(report: Report): boolean;
  setLogLevel(level: LogLevel): void;
  /** `host:port` of the first listener that speaks HTTP, as clients on this machine reach it. */
  proxyAddress(): string | undefined;
}
