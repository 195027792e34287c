/** The fields of the table of faults. */

export type Side =
  | 'client'
  | 'member'
  | 'target'
  | 'source'
  | 'service'
  | 'front-proxy'
  | 'operator'
  | 'noria';
type Retry = 'never' | 'other-member' | 'later';

export interface Fault {
  /** The side that caused the failure. */
  readonly side: Side;
  /** Whether to try again: never, with another member, or later. */
  readonly retry: Retry;
  /** The HTTP status for the client. Absent if no HTTP client gets the fault. */
  readonly http?: number;
  /**
   * The SOCKS5 reply for the client (RFC 1928 §6). `auth`: in place of a reply, noria reports that the authentication
   * failed (RFC 1929).
   */
  readonly socks5?: number | 'auth';
  /** The error token of the Proxy-Status header (RFC 9209 §2.3). */
  readonly proxyStatus?: string;
  /** What happened, in one sentence. */
  readonly summary: string;
  /** What the reader of the error can do. */
  readonly advice: string;
}
