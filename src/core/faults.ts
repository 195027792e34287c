/**
 * The table of all faults, and the class of errors that have such a fault. docs/errors.md lists the same faults,
 * checked by test/held/errors.test.ts.
 *
 * SOCKS4 has no column, because it has only one code for all refusals (0x5B).
 */
export type Side =
  | 'client'
  | 'member'
  | 'target'
  | 'source'
  | 'service'
  | 'front-proxy'
  | 'operator'
  | 'noria';

export interface Fault {
  /** The side that caused the failure. */
  readonly side: Side;
  readonly retry: 'never' | 'other-member' | 'later';
  /** The HTTP status for the client. Absent if no HTTP client gets the fault. */
  readonly http?: number | undefined;
  /** The SOCKS5 reply for the client (RFC 1928 §6). `auth`: the authentication fails instead (RFC 1929). */
  readonly socks5?: number | 'auth' | undefined;
  /** The error token of the Proxy-Status header (RFC 9209 §2.3). Absent if no client gets the fault. */
  readonly proxyStatus?: string | undefined;
  /** What happened, in one sentence. */
  readonly summary: string;
  /** What the reader of the error can do. */
  readonly advice: string;
}

const REPLACED = 'No action needed: noria tries another member and quarantines this one.';

export const FAULTS = {
  // The faults that clients see. The HTTP header X-Noria-Error contains the code.
  'auth-required': fault(
    ['client', 'never', 407, 'auth', 'http_request_denied'],
    'Missing or invalid proxy credentials.',
    'Use the user name and password of a user of this listener (HTTP Basic or SOCKS5 username/password).',
  ),
  'bad-routing': fault(
    ['client', 'never', 400, 'auth', 'http_request_error'],
    'Invalid or unsatisfiable routing options in the proxy user name or an X-Noria header.',
    'Write the options as BASE-key-value, for example user-session-abc-life-30s; docs/routing.md of noria lists the keys.',
  ),
  forbidden: fault(
    ['client', 'never', 403, 0x02, 'http_request_denied'],
    'The listener does not allow this client or this target.',
    "Check allow and denyTargets of the listener in noria's configuration.",
  ),
  'bad-request': fault(
    ['client', 'never', 400, 0x01, 'http_request_error'],
    'The request is malformed.',
    'Send a CONNECT, absolute-form HTTP or SOCKS request.',
  ),
  'request-timeout': fault(
    ['client', 'never', 408, 0x01, 'http_request_error'],
    'The request head did not arrive in time.',
    'Send the whole request head at once.',
  ),
  'expectation-failed': fault(
    ['client', 'never', 417, undefined, 'http_request_error'],
    'The request has an Expect header that noria does not support.',
    'Use only Expect: 100-continue.',
  ),
  'uri-too-long': fault(
    ['client', 'never', 414, undefined, 'http_request_error'],
    'The request line is too long.',
    'Keep the URL below 16 KiB.',
  ),
  'head-too-large': fault(
    ['client', 'never', 431, undefined, 'http_request_error'],
    'The request head is too large.',
    'Keep the request line and headers below 16 KiB.',
  ),
  'not-implemented': fault(
    ['client', 'never', 501, 0x07, 'http_request_error'],
    'The request uses a feature that noria does not support.',
    'Over HTTP, use CONNECT or an absolute http:// URL, and no transfer coding except chunked. Over SOCKS, use only CONNECT.',
  ),
  'too-many-requests': fault(
    ['client', 'later', 429, 'auth', 'http_request_denied'],
    'Too many attempts with wrong credentials for this user from this address.',
    'Use the correct credentials: noria still accepts them. For up to a minute, each further wrong attempt gets this error.',
  ),
  'too-many-connections': fault(
    ['client', 'later', 503, 0x01, 'connection_limit_reached'],
    'The listener has reached its connection limit.',
    "Close connections, or raise maxConnections of the listener in noria's configuration.",
  ),
  'pool-empty': fault(
    ['source', 'later', 503, 0x01, 'destination_unavailable'],
    'No member became available in time.',
    'Try again after the time in Retry-After; noria status shows what each source waits for.',
  ),
  'site-banned': fault(
    ['target', 'later', 503, 0x01, 'destination_unavailable'],
    'Every exit is banned for this site, and noria may draw no more IPs for it now.',
    'Try again after the time in Retry-After; noria sites shows the bans. drawsForBans in targets limits the draws.',
  ),
  'session-ended': fault(
    ['member', 'never', 503, 0x01, 'destination_unavailable'],
    'The member of this fixed session has ended.',
    'Take another session name for a new exit; without fixed, noria moves the session by itself.',
  ),
  limit: fault(
    ['client', 'later', 429, 0x02, 'http_request_denied'],
    'A limit of the user or of the site is reached.',
    'Try again after the time in Retry-After, or raise the limit (limits of the user, rate in targets).',
  ),
  'target-unreachable': fault(
    ['target', 'never', 502, 0x04, 'destination_ip_unroutable'],
    'The target is unreachable through all members that noria tried.',
    'Check the host name and port of the target.',
  ),
  'members-failed': fault(
    ['member', 'later', 502, 0x01, 'destination_unavailable'],
    'All members that noria tried failed.',
    'Try again; noria status shows the health of the members.',
  ),
  'front-proxy-failed': fault(
    ['front-proxy', 'later', 502, 0x01, 'destination_unavailable'],
    'noria could not connect through the front proxy.',
    "Check the front proxy, and its URL in noria's configuration (dial.via or service.via).",
  ),
  'proxy-loop': fault(
    ['front-proxy', 'never', 502, 0x01, 'proxy_loop_detected'],
    'The front proxy leads back to noria.',
    'Set dial.via and service.via to a front proxy that does not send its connections to noria.',
  ),
  'bad-answer': fault(
    ['target', 'never', 502, undefined, 'http_protocol_error'],
    'The response is not valid HTTP for this request, so noria did not forward it.',
    'Request the target without a proxy to see its response, or use CONNECT, which forwards any response.',
  ),
  deadline: fault(
    ['noria', 'later', 504, 0x06, 'connection_timeout'],
    'The deadline passed before a member reached the target.',
    "Try again, or raise dial.deadline in noria's configuration.",
  ),
  'shutting-down': fault(
    ['noria', 'later', 503, 0x01, 'proxy_internal_response'],
    'noria is shutting down.',
    'Try again when noria is running again.',
  ),
  internal: fault(
    ['noria', 'later', 500, 0x01, 'proxy_internal_error'],
    'Internal error in noria.',
    'Report this error, with the lines that noria logged when it occurred.',
  ),

  // The faults of one attempt through one member.
  'member-unreachable': fault(['member', 'other-member'], 'Could not connect to the member.', REPLACED),
  'member-silent': fault(
    ['member', 'other-member'],
    'The member accepted the connection but did not answer within dial.attemptTimeout.',
    REPLACED,
  ),
  'member-closed': fault(
    ['member', 'other-member'],
    'The member closed the connection before it answered.',
    REPLACED,
  ),
  'member-protocol': fault(
    ['member', 'other-member'],
    'The answer of the member does not follow its protocol.',
    'If all members of a source answer like this, check upstream.protocol of the source.',
  ),
  'member-refused': fault(
    ['member', 'other-member'],
    'The member refused the request.',
    'If all members of a source refuse the request, check whether they allow the port of the target.',
  ),
  'member-incapable': fault(
    ['member', 'other-member'],
    'The protocol of the member cannot carry the address of this target.',
    'SOCKS4 has no IPv6 addresses: request the target by name, or use members with another protocol.',
  ),
  'member-auth': fault(
    ['member', 'other-member'],
    'The member asked for credentials or rejected them.',
    "Bind this machine's IP address in the console of the service, or set the password of the instance in the source.",
  ),
  'target-doubted': fault(
    ['target', 'other-member'],
    'The member reported that it cannot reach the target.',
    'No action needed: noria tries another member, whose answer decides which side is at fault.',
  ),
  'front-proxy-silent': fault(
    ['front-proxy', 'other-member'],
    'The front proxy did not answer, or closed the connection. Either the front proxy or the member is at fault.',
    'No action needed if other members work; otherwise check the front proxy of dial.via.',
  ),
  'member-cut': fault(
    ['member', 'never'],
    'The member closed the tunnel before the first byte of an answer.',
    'No action needed: noria counts this as a suspicion against the member.',
  ),
  'member-mute': fault(
    ['member', 'never'],
    'The member accepted the target and then relayed no byte back, while the target answered through other members.',
    'No action needed: noria quarantines and probes a member that is mute for two hosts or clients.',
  ),
  'member-rejected': fault(
    ['member', 'other-member'],
    'A client of proxyPool reported the member as bad.',
    'No action needed: noria quarantines the member and assigns another one to the proxyPool port.',
  ),
  'client-gone': fault(
    ['client', 'never'],
    'The client disconnected before a member accepted the request.',
    'No action needed, or raise the timeout of the client.',
  ),
  'network-down': fault(
    ['noria', 'later'],
    'Connections to many members failed at once for different targets, so the network of this machine is at fault.',
    'Check the network of this machine. Until it works again, noria evicts no members.',
  ),

  // The faults of calls to the extraction service.
  'service-transport': fault(
    ['service', 'later'],
    'The extraction service did not answer.',
    "Check service.baseUrl, or the source's own baseUrl, host or url, and the network; noria retries with increasing delays.",
  ),
  'service-blocked': fault(
    ['service', 'later'],
    'The answer did not come from the service; a firewall may block the address of this machine.',
    'Stop other programs that call the service from this machine; noria waits before it retries.',
  ),
  'service-not-found': fault(
    ['service', 'later'],
    'The server at the configured address does not have the operation that noria called.',
    "Check service.baseUrl, or the source's own baseUrl, host or url.",
  ),
  'service-protocol': fault(
    ['service', 'later'],
    'The answer of the service could not be parsed.',
    'Check that format and textLayout of the source match the extraction format of the instance.',
  ),
  'list-unreadable': fault(
    ['service', 'later'],
    'noria cannot read the list of proxies.',
    'Check file or url of the source, and that noria may read it; the members of the last successful reading stay.',
  ),
  'link-unreadable': fault(
    ['service', 'later'],
    'The answer of the link contains no proxy that noria can read.',
    'Read the quoted answer, which may say why. If it lists proxies, correct `answer` of the source in the configuration; `noria link` shows what noria recognises.',
  ),
  'service-refused': fault(
    ['service', 'later'],
    'The service returned an error code.',
    'Look up the code in docs/service.md of noria.',
  ),

  // The faults of the configuration, the command line and the admin API.
  'bad-usage': fault(
    ['operator', 'never'],
    'Invalid command or arguments.',
    'Run noria help COMMAND for its usage.',
  ),
  'bad-config': fault(
    ['operator', 'never'],
    'The configuration is invalid.',
    'Correct the lines that the errors name; each error says what noria expected.',
  ),
  'listen-failed': fault(
    ['operator', 'never'],
    'Could not listen on an address.',
    'Correct the address in the configuration, or stop the program that uses the address.',
  ),
  'state-locked': fault(
    ['operator', 'never'],
    'Another noria uses the same state folder.',
    'Stop the other noria, or set another state.dir for this one.',
  ),
  'state-unwritable': fault(
    ['operator', 'never'],
    'The state folder cannot be written.',
    'Make state.dir writable for the user that runs noria, on a file system with hard links.',
  ),
  'fleet-store-lost': fault(
    ['operator', 'later'],
    "noria cannot reach the fleet's store, so noria draws no members.",
    'Check fleet.url and the store; noria continues with the members it has, and reconnects by itself.',
  ),
  'fleet-store-unusable': fault(
    ['operator', 'later'],
    "The fleet's store refuses noria, so noria draws no members.",
    'Run noria check, which names the problem and the solution.',
  ),
  'workers-failed': fault(
    ['operator', 'never'],
    'All worker processes keep failing, so noria cannot serve clients.',
    'See the log for the reasons; check the memory and process limits, or set workers: 1.',
  ),
  'pace-held': fault(
    ['operator', 'later'],
    'The pace of the source does not allow a call to the service now.',
    'Try again after the time that the message names.',
  ),
  'daemon-unreachable': fault(
    ['operator', 'later'],
    'No running noria answered at the admin address.',
    'Start noria with the command noria run, or give its address with --admin.',
  ),
  'not-found': {
    ...fault(
      ['operator', 'never'],
      'The requested item does not exist.',
      'Run noria status, noria members or noria sessions to list what exists.',
    ),
    http: 404,
  },
};

export type FaultCode = keyof typeof FAULTS;

export class NoriaError extends Error {
  override readonly name = 'NoriaError';
  readonly code: FaultCode;
  /** Values for the log: ids, host:port, counts, times in ms. They never contain a secret or a body. */
  readonly context: Readonly<Record<string, string | number | boolean>>;

  constructor(
    code: FaultCode,
    message: string,
    options: { readonly cause?: unknown; readonly context?: NoriaError['context'] } = {},
  ) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.context = options.context ?? {};
  }
}

/** Whether an error has the code. Use it instead of comparing the message or the class of an error. */
export function hasCode(error: unknown, code: FaultCode): error is NoriaError {
  return error instanceof NoriaError && error.code === code;
}

/** One line for any thrown value; for an AggregateError, with the texts of all its errors. */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0)
    return error.errors.map(describeError).join('; ');
  if (error instanceof Error) return error.message === '' ? error.name : error.message;
  return String(error);
}

function fault(
  [side, retry, http, socks5, proxyStatus]: readonly [
    Side,
    Fault['retry'],
    http?: number,
    socks5?: Fault['socks5'],
    proxyStatus?: string,
  ],
  summary: string,
  advice: string,
): Fault {
  return proxyStatus === undefined
    ? { side, retry, summary, advice }
    : { side, retry, http, socks5, proxyStatus, summary, advice };
}
