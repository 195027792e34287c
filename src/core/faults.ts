/**
 * Every way noria can fail, in one table, and the one class that carries it.
 *
 * `side` says whose fault it is, `retry` what may be tried next; `http`, `socks5` and `proxyStatus` are what a
 * waiting client is told, `says` and `advice` the words for it. docs/errors.md lists the same codes, held by
 * test/held/errors.test.ts. SOCKS4 knows one refusal (0x5B), so it has no column.
 */

export type Side = 'client' | 'member' | 'target' | 'source' | 'service' | 'operator' | 'noria';
export type Retry = 'never' | 'other-member' | 'later';

export interface Fault {
  readonly side: Side;
  readonly retry: Retry;
  /** HTTP status for a waiting client; absent where no client waits. */
  readonly http?: number;
  /** Reply for a waiting SOCKS5 client (RFC 1928 §6); `auth` fails the RFC 1929 sub-negotiation instead. */
  readonly socks5?: number | 'auth';
  /** The error token of RFC 9209 §2.3. */
  readonly proxyStatus?: string;
  /** What happened, in one sentence. */
  readonly says: string;
  /** What to do about it, in one sentence. */
  readonly advice: string;
}

export const FAULTS = {
  // What a client is told. The codes are those of the X-Noria-Error header.
  'auth-required': {
    side: 'client',
    retry: 'never',
    http: 407,
    socks5: 'auth',
    proxyStatus: 'http_request_denied',
    says: 'This listener asks for a user name and password, and none that fit were given.',
    advice: 'Give the proxy credentials of a user of this listener (HTTP Basic or SOCKS5 username/password).',
  },
  'bad-routing': {
    side: 'client',
    retry: 'never',
    http: 400,
    socks5: 'auth',
    proxyStatus: 'http_request_error',
    says: 'The wish in the proxy user name or in an X-Noria header cannot be read, or never be met.',
    advice:
      'Write it as BASE-key-value, for example user-session-abc-life-30s; the documentation lists the keys.',
  },
  forbidden: {
    side: 'client',
    retry: 'never',
    http: 403,
    socks5: 0x02,
    proxyStatus: 'http_request_denied',
    says: 'This client or this target is not allowed on this listener.',
    advice: "Look at allow and denyTargets of the listener in noria's configuration.",
  },
  'bad-request': {
    side: 'client',
    retry: 'never',
    http: 400,
    socks5: 0x01,
    proxyStatus: 'http_request_error',
    says: 'The request is malformed.',
    advice: 'Send a CONNECT or an absolute-form HTTP request, or speak SOCKS.',
  },
  'request-timeout': {
    side: 'client',
    retry: 'never',
    http: 408,
    socks5: 0x01,
    proxyStatus: 'http_request_error',
    says: 'The request head did not arrive in time.',
    advice: 'Send the whole head at once.',
  },
  'expectation-failed': {
    side: 'client',
    retry: 'never',
    http: 417,
    proxyStatus: 'http_request_error',
    says: 'The request expects something that noria does not know.',
    advice: 'Expect nothing but 100-continue.',
  },
  'head-too-large': {
    side: 'client',
    retry: 'never',
    http: 431,
    proxyStatus: 'http_request_error',
    says: 'The request head is too large.',
    advice: 'Keep the request line and the headers below 16 KiB.',
  },
  'not-implemented': {
    side: 'client',
    retry: 'never',
    http: 501,
    socks5: 0x07,
    proxyStatus: 'http_request_error',
    says: 'The request uses something that noria does not do.',
    advice:
      'Use CONNECT or http:// in absolute form, chunked as the only transfer coding, and CONNECT in SOCKS.',
  },
  'too-many-requests': {
    side: 'client',
    retry: 'later',
    http: 429,
    socks5: 'auth',
    proxyStatus: 'http_request_denied',
    says: 'Too many attempts with wrong credentials came from this address.',
    advice: 'Wait a minute, then use the right ones.',
  },
  'too-many-connections': {
    side: 'client',
    retry: 'later',
    http: 503,
    socks5: 0x01,
    proxyStatus: 'connection_limit_reached',
    says: 'This listener holds as many connections as it may.',
    advice: 'Close some, or raise maxConnections of the listener.',
  },
  'pool-empty': {
    side: 'source',
    retry: 'later',
    http: 503,
    socks5: 0x01,
    proxyStatus: 'destination_unavailable',
    says: 'No member became available in time.',
    advice: 'Try again after the time in Retry-After; noria status says what each source waits for.',
  },
  'target-unreachable': {
    side: 'target',
    retry: 'never',
    http: 502,
    socks5: 0x04,
    proxyStatus: 'destination_ip_unroutable',
    says: 'The target is unreachable through every member tried.',
    advice: 'Check the host name and the port; the members themselves answered.',
  },
  'members-failed': {
    side: 'member',
    retry: 'later',
    http: 502,
    socks5: 0x01,
    proxyStatus: 'destination_unavailable',
    says: 'Every member tried failed.',
    advice: 'Try again; noria status shows the health of the members.',
  },
  'bad-answer': {
    side: 'target',
    retry: 'never',
    http: 502,
    proxyStatus: 'http_protocol_error',
    says: 'The answer to this request is not one that a proxy may pass on.',
    advice: 'Ask the target without a proxy to see what it sends; CONNECT passes everything on unread.',
  },
  deadline: {
    side: 'noria',
    retry: 'later',
    http: 504,
    socks5: 0x06,
    proxyStatus: 'connection_timeout',
    says: 'The deadline passed before a member reached the target.',
    advice: 'Try again, or raise dial.deadline.',
  },
  'shutting-down': {
    side: 'noria',
    retry: 'later',
    http: 503,
    socks5: 0x01,
    proxyStatus: 'proxy_internal_response',
    says: 'noria is shutting down.',
    advice: 'Try again when it is back.',
  },
  internal: {
    side: 'noria',
    retry: 'later',
    http: 500,
    socks5: 0x01,
    proxyStatus: 'proxy_internal_error',
    says: 'noria made a mistake while it handled this request.',
    advice: 'Report it with the log lines of this moment.',
  },

  // What one attempt through one member came to.
  'member-unreachable': {
    side: 'member',
    retry: 'other-member',
    says: 'No TCP connection to the member came about.',
    advice: 'Nothing: another member is tried, and this one rests.',
  },
  'member-silent': {
    side: 'member',
    retry: 'other-member',
    says: 'The member took the connection and did not answer within dial.attemptTimeout.',
    advice: 'Nothing: another member is tried, and this one rests.',
  },
  'member-closed': {
    side: 'member',
    retry: 'other-member',
    says: 'The member closed the connection before it had answered.',
    advice: 'Nothing: another member is tried, and this one rests.',
  },
  'member-protocol': {
    side: 'member',
    retry: 'other-member',
    says: 'The member answered something that is not its protocol.',
    advice: 'If all members of a source do this, check upstream.protocol of the source.',
  },
  'member-refused': {
    side: 'member',
    retry: 'other-member',
    says: 'The member refused the request.',
    advice: 'If all members of a source do this, they may not allow this port.',
  },
  'member-incapable': {
    side: 'member',
    retry: 'other-member',
    says: "The member's protocol has no way to name this target.",
    advice:
      'SOCKS4 knows no IPv6 addresses: ask for the target by its name, or for members of another protocol.',
  },
  'member-auth': {
    side: 'member',
    retry: 'other-member',
    says: 'The member asked for credentials, or refused those given.',
    advice:
      "Bind this machine's address in the service's console, or give the instance's password in the source.",
  },
  'target-doubted': {
    side: 'target',
    retry: 'other-member',
    says: 'The member answered that it cannot reach the target.',
    advice: 'Nothing: another member is asked, and its answer decides whose fault it was.',
  },
  'member-cut': {
    side: 'member',
    retry: 'never',
    says: 'The member ended the tunnel before the first byte of an answer.',
    advice: 'Nothing: it counts half a fault of the member.',
  },
  'client-gone': {
    side: 'client',
    retry: 'never',
    says: 'The client left before a member had accepted.',
    advice: "Nothing, or raise the client's own timeout.",
  },
  'network-down': {
    side: 'noria',
    retry: 'later',
    says: 'Connections to many members failed at once, for different targets: our own network is at fault.',
    advice: 'Check the network of this machine; members are not evicted meanwhile.',
  },

  // The extraction service.
  'service-transport': {
    side: 'service',
    retry: 'later',
    says: 'The extraction service gave no answer.',
    advice: 'Check service.baseUrl and the network; noria tries again, more and more slowly.',
  },
  'service-blocked': {
    side: 'service',
    retry: 'later',
    says: 'The answer came from something else than the service: perhaps a firewall that blocks this address.',
    advice:
      'Stop other programs that call the service from here; noria stays away for a while before it tries again.',
  },
  'service-protocol': {
    side: 'service',
    retry: 'later',
    says: "The service's answer cannot be understood.",
    advice: "Check that format and textLayout fit the instance's extraction format.",
  },
  'service-refused': {
    side: 'service',
    retry: 'later',
    says: 'The service refused with a code of its own.',
    advice: 'The page on the service lists each code and what to do.',
  },

  // The operator's side.
  'bad-usage': {
    side: 'operator',
    retry: 'never',
    says: 'The command was not understood.',
    advice: 'noria help COMMAND shows how it is used.',
  },
  'bad-config': {
    side: 'operator',
    retry: 'never',
    says: 'The configuration is invalid.',
    advice: 'Each line of the error names the place and what is wanted there.',
  },
  'bad-params': {
    side: 'operator',
    retry: 'never',
    says: 'A parameter of a source is not one that its operation takes.',
    advice: "Compare params with the operation's parameters in the documentation.",
  },
  'listen-failed': {
    side: 'operator',
    retry: 'never',
    says: 'An address could not be listened on.',
    advice: 'Free the port, choose another one, or give the permission.',
  },
  'state-locked': {
    side: 'operator',
    retry: 'never',
    says: 'Another noria uses the same state folder.',
    advice: 'Stop it, or give this one another state.dir.',
  },
  'state-unwritable': {
    side: 'operator',
    retry: 'never',
    says: 'The state folder cannot be written.',
    advice:
      'Give the user that runs noria the right to write state.dir, on a file system that has hard links.',
  },
  'workers-failed': {
    side: 'operator',
    retry: 'never',
    says: 'No worker process stays alive, so nobody can be served.',
    advice:
      'The log says how each of them ended; look at the memory and the number of processes allowed, or set workers: 1.',
  },
  'pace-held': {
    side: 'operator',
    retry: 'later',
    says: 'The pace does not allow a call now.',
    advice: 'Wait for the time that is named.',
  },
  'daemon-unreachable': {
    side: 'operator',
    retry: 'later',
    says: 'No running noria answered at the admin address.',
    advice: 'Start it with noria run, or name its address with --admin.',
  },
  'not-found': {
    side: 'operator',
    retry: 'never',
    http: 404,
    says: 'There is no such thing.',
    advice: 'The lists of the admin API name what there is.',
  },
} as const satisfies Record<string, Fault>;

export type FaultCode = keyof typeof FAULTS;

/** Facts for the log line: ids, host:port, counts, ms. Never a secret, never a body. */
export type FaultContext = Readonly<Record<string, string | number | boolean>>;

export class NoriaError extends Error {
  override readonly name = 'NoriaError';
  readonly code: FaultCode;
  readonly context: FaultContext;

  constructor(
    code: FaultCode,
    message: string,
    options: { readonly cause?: unknown; readonly context?: FaultContext } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.context = options.context ?? {};
  }

  get fault(): Fault {
    return FAULTS[this.code];
  }
}

/** Match on the code, never on the message or the class. */
export function hasCode(error: unknown, code: FaultCode): error is NoriaError {
  return error instanceof NoriaError && error.code === code;
}

/** One line about any thrown thing: a system error's code and message, an AggregateError's parts. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0)
    return error.errors.map(describeError).join('; ');
  if (error instanceof Error) return error.message === '' ? error.name : error.message;
  return String(error);
}
