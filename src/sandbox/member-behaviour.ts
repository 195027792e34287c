/** How a member behaves: well, or badly in one of the ways that members are known for. */

export type Behaviour =
  | { readonly how: 'good' }
  /** Its port is closed. */
  | { readonly how: 'refuse' }
  /** Accepts the connection and never says anything. */
  | { readonly how: 'silent' }
  /** Accepts the target, then carries nothing either way. */
  | { readonly how: 'silent-after' }
  /** Well, after waiting `ms` on each new connection. */
  | { readonly how: 'slow'; readonly ms: number }
  /** Answers this status, 502, 503, 504 or 407 say, with an HTML page; SOCKS members the reply nearest to it. */
  | { readonly how: 'status'; readonly status: number }
  /** HTTP members: well, but CONNECT is answered `status` (default 405), to all ports but `ports`. */
  | {
      readonly how: 'no-connect';
      readonly status?: number | undefined;
      readonly ports?: readonly number[] | undefined;
    }
  /** Answers bytes of another protocol. */
  | { readonly how: 'garbage' }
  /** Well, but says each byte of its own answers alone, `ms` apart (default: the next turn of the loop). */
  | { readonly how: 'dribble'; readonly ms?: number | undefined }
  /** Half of its answer, then the end. */
  | { readonly how: 'partial' }
  /** Ends the connection without an answer, on accept or after the request (default). */
  | { readonly how: 'close'; readonly when?: 'accept' | 'request' | undefined }
  /** The same with a TCP reset. */
  | { readonly how: 'reset'; readonly when?: 'accept' | 'request' | undefined }
  /** Answers in a version that does not exist. */
  | { readonly how: 'wrong-version' }
  /** An answer whose head never ends. */
  | { readonly how: 'endless-head' }
  /** Well, but resets the tunnel once this many bytes of the target have gone back to the client. */
  | { readonly how: 'cut'; readonly afterBytes: number };

export const WELL_BEHAVED: Behaviour = { how: 'good' };
