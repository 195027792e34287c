/** What noria knows about a kind of failure. */

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
  /** Whether another try may help: never, with another member, or later. */
  readonly retry: Retry;
  /** HTTP status for the client; absent if no HTTP client gets it. */
  readonly http?: number;
  /** SOCKS5 reply for the client (RFC 1928 §6); `auth` fails the authentication instead (RFC 1929). */
  readonly socks5?: number | 'auth';
  /** Error token of the Proxy-Status header (RFC 9209 §2.3). */
  readonly proxyStatus?: string;
  /** What happened, in one sentence. */
  readonly summary: string;
  /** What to do about it, in one sentence. */
  readonly advice: string;
}
