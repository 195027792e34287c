/**
 * The table of all faults, and the class of errors that have such a fault. docs/errors.md lists the same faults,
 * checked by test/held/errors.test.ts.
 *
 * SOCKS4 has no column, because it has only one code for all refusals (0x5B).
 */
import { CLIENT_FAULTS } from './client-faults.ts';
import type { Fault } from './fault.ts';

export const FAULTS = {
  ...CLIENT_FAULTS,

  // The faults of one attempt through one member.
  'member-unreachable': {
    side: 'member',
    retry: 'other-member',
    summary: 'Could not connect to the member.',
    advice: 'No action needed: noria tries another member and quarantines this one.',
  },
  'member-silent': {
    side: 'member',
    retry: 'other-member',
    summary: 'The member accepted the connection but did not answer within dial.attemptTimeout.',
    advice: 'No action needed: noria tries another member and quarantines this one.',
  },
  'member-closed': {
    side: 'member',
    retry: 'other-member',
    summary: 'The member closed the connection before it answered.',
    advice: 'No action needed: noria tries another member and quarantines this one.',
  },
  'member-protocol': {
    side: 'member',
    retry: 'other-member',
    summary: 'The answer of the member does not follow its protocol.',
    advice: 'If all members of a source answer like this, check upstream.protocol of the source.',
  },
  'member-refused': {
    side: 'member',
    retry: 'other-member',
    summary: 'The member refused the request.',
    advice: 'If all members of a source refuse the request, check whether they allow the port of the target.',
  },
  'member-incapable': {
    side: 'member',
    retry: 'other-member',
    summary: 'The protocol of the member cannot carry the address of this target.',
    advice: 'SOCKS4 has no IPv6 addresses: request the target by name, or use members with another protocol.',
  },
  'member-auth': {
    side: 'member',
    retry: 'other-member',
    summary: 'The member asked for credentials or rejected them.',
    advice:
      "Bind this machine's IP address in the console of the service, or set the password of the instance in the source.",
  },
  'target-doubted': {
    side: 'target',
    retry: 'other-member',
    summary: 'The member reported that it cannot reach the target.',
    advice: 'No action needed: noria tries another member, whose answer decides which side is at fault.',
  },
  'front-proxy-silent': {
    side: 'front-proxy',
    retry: 'other-member',
    summary:
      'The front proxy did not answer, or closed the connection. Either the front proxy or the member is at fault.',
    advice: 'No action needed if other members work; otherwise check the front proxy of dial.via.',
  },
  'member-cut': {
    side: 'member',
    retry: 'never',
    summary: 'The member closed the tunnel before the first byte of an answer.',
    advice: 'No action needed: noria counts this as a suspicion against the member.',
  },
  'member-rejected': {
    side: 'member',
    retry: 'other-member',
    summary: 'A client of proxyPool reported the member as bad.',
    advice: 'No action needed: noria quarantines the member and assigns another one to the proxyPool port.',
  },
  'client-gone': {
    side: 'client',
    retry: 'never',
    summary: 'The client disconnected before a member accepted the request.',
    advice: 'No action needed, or raise the timeout of the client.',
  },
  'network-down': {
    side: 'noria',
    retry: 'later',
    summary:
      'Connections to many members failed at once for different targets, so the network of this machine is at fault.',
    advice: 'Check the network of this machine. Until it works again, noria evicts no members.',
  },

  // The faults of calls to the extraction service.
  'service-transport': {
    side: 'service',
    retry: 'later',
    summary: 'The extraction service did not answer.',
    advice:
      'Check service.baseUrl (or url of the link) and the network; noria retries with increasing delays.',
  },
  'service-blocked': {
    side: 'service',
    retry: 'later',
    summary: 'The answer did not come from the service; a firewall may block the address of this machine.',
    advice: 'Stop other programs that call the service from this machine; noria waits before it retries.',
  },
  'service-not-found': {
    side: 'service',
    retry: 'later',
    summary: 'The server at the configured address does not have the operation that noria called.',
    advice: "Check service.baseUrl, or the source's own baseUrl, host or url.",
  },
  'service-protocol': {
    side: 'service',
    retry: 'later',
    summary: 'The answer of the service could not be parsed.',
    advice: 'Check that format and textLayout of the source match the extraction format of the instance.',
  },
  'link-unreadable': {
    side: 'service',
    retry: 'later',
    summary: 'The answer of the link contains no proxy that noria can read.',
    advice:
      'Read the quoted answer, which may say why. If it lists proxies, correct `answer` of the source in the configuration; `noria link` shows what noria recognises.',
  },
  'service-refused': {
    side: 'service',
    retry: 'later',
    summary: 'The service returned an error code.',
    advice: 'Look up the code in docs/service.md of noria.',
  },

  // The faults of the configuration, the command line and the admin API.
  'bad-usage': {
    side: 'operator',
    retry: 'never',
    summary: 'Invalid command or arguments.',
    advice: 'Run noria help COMMAND for its usage.',
  },
  'bad-config': {
    side: 'operator',
    retry: 'never',
    summary: 'The configuration is invalid.',
    advice: 'Correct the lines that the errors name; each error says what noria expected.',
  },
  'listen-failed': {
    side: 'operator',
    retry: 'never',
    summary: 'Could not listen on an address.',
    advice: 'Correct the address in the configuration, or stop the program that uses the address.',
  },
  'state-locked': {
    side: 'operator',
    retry: 'never',
    summary: 'Another noria uses the same state folder.',
    advice: 'Stop the other noria, or set another state.dir for this one.',
  },
  'state-unwritable': {
    side: 'operator',
    retry: 'never',
    summary: 'The state folder cannot be written.',
    advice: 'Make state.dir writable for the user that runs noria, on a file system with hard links.',
  },
  'fleet-store-lost': {
    side: 'operator',
    retry: 'later',
    summary: "noria cannot reach the fleet's store, so noria draws no members.",
    advice:
      'Check fleet.url and the store; noria continues with the members it has, and reconnects by itself.',
  },
  'fleet-store-unusable': {
    side: 'operator',
    retry: 'later',
    summary: "The fleet's store refuses noria, so noria draws no members.",
    advice: 'Run noria check, which names the problem and the solution.',
  },
  'workers-failed': {
    side: 'operator',
    retry: 'never',
    summary: 'All worker processes keep failing, so noria cannot serve clients.',
    advice: 'See the log for the reasons; check the memory and process limits, or set workers: 1.',
  },
  'pace-held': {
    side: 'operator',
    retry: 'later',
    summary: 'The pace of the source does not allow a call to the service now.',
    advice: 'Try again after the time that the message names.',
  },
  'daemon-unreachable': {
    side: 'operator',
    retry: 'later',
    summary: 'No running noria answered at the admin address.',
    advice: 'Start noria with the command noria run, or give its address with --admin.',
  },
  'not-found': {
    side: 'operator',
    retry: 'never',
    http: 404,
    summary: 'The requested item does not exist.',
    advice: 'Run noria status, noria members or noria sessions to list what exists.',
  },
} as const satisfies Record<string, Fault>;

export type FaultCode = keyof typeof FAULTS;

/** Values for the log: ids, host:port, counts, times in ms. They never contain a secret or a body. */
type FaultContext = Readonly<Record<string, string | number | boolean>>;

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

/** Whether an error has the code. Use it instead of comparing the message or the class of an error. */
export function hasCode(error: unknown, code: FaultCode): error is NoriaError {
  return error instanceof NoriaError && error.code === code;
}

/**
 * Returns one line of text for any thrown value. For an AggregateError, the line contains the texts of all its errors.
 */
export function describeError(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0)
    return error.errors.map(describeError).join('; ');
  if (error instanceof Error) return error.message === '' ? error.name : error.message;
  return String(error);
}
