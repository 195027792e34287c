/**
 * Every code of the service, keyed by operation and code, because 12007, 12008 and 12010 change their meaning with the
 * operation: what it means, what refill does about it, and what a person can do.
 *
 * Source: the specification, section "Errors". docs/service.md lists the same, held by test/held/service.test.ts. The service's
 * own text is never looked at: it varies, and may come in another encoding.
 */
import type { DrawAnswer } from './answer.ts';
import { OPERATIONS, type OperationNumber, type Product } from './operations.ts';

/** What is done about an answer. A closed list: whoever acts on it answers each kind. */
export type CodeVerdict =
  /** Carry on. */
  | { readonly kind: 'ok' }
  /** Nothing to be had just now: carry on at the pace, the source is well. */
  | { readonly kind: 'empty' }
  /** Called too often: widen the pace. */
  | { readonly kind: 'slow-down' }
  /** Not one call for `ms`: each would start the wait anew. */
  | { readonly kind: 'silence'; readonly ms: number }
  /** A condition that passes, or that a person can lift while noria looks again every `retryEveryMs`. */
  | { readonly kind: 'pause'; readonly retryEveryMs: number }
  /** An allowance is used up: look again after `retryFromMs`, doubling to `retryToMs`; with `atMidnight` also when the service's day begins. */
  | {
      readonly kind: 'quota';
      readonly retryFromMs: number;
      readonly retryToMs: number;
      readonly atMidnight: boolean;
    }
  /** A person is needed. Without `retryEveryMs` it is not tried again by itself. */
  | { readonly kind: 'halt'; readonly retryEveryMs?: number }
  /** Not understood: tried again after `retryFromMs`, doubling to `retryToMs`. */
  | { readonly kind: 'back-off'; readonly retryFromMs: number; readonly retryToMs: number };

export interface CodeMeaning {
  /** One sentence, without the code. */
  readonly summary: string;
  /** What a person can do; empty where nothing needs doing. */
  readonly advice: string;
  readonly verdict: CodeVerdict;
  /** The answer held proxies, and noria may or can use none of them. */
  readonly allDropped?: true;
  /** Halve the tunnels the source may hold open, until a call succeeds. */
  readonly limitsConnections?: true;
  /** False for a code that the specification does not list for this operation. */
  readonly listed: boolean;
}

/** The code of success, in every operation. */
export const SUCCESS = '10001';

/** The service's day begins at midnight of this zone (inferred: it tells no zone). */
export const SERVICE_ZONE_OFFSET_MS = 8 * 3_600_000;

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

type Entry = Omit<CodeMeaning, 'listed'>;

const OK: Entry = { summary: 'The call succeeded.', advice: '', verdict: { kind: 'ok' } };
const KEY_WRONG: Entry = {
  summary: 'The key is wrong.',
  advice:
    "Give the instance's own password, from which noria derives the key, or its 16-character key as akey; it is neither the account's password nor the whole MD5. noria key shows what a password gives. Then reload (SIGHUP).",
  verdict: { kind: 'halt' },
};
const TOO_OFTEN: Entry = {
  summary: 'The service is called too often.',
  advice: 'If noria keeps its pace, something else uses the same instance: stop it, or raise interval.',
  verdict: { kind: 'slow-down' },
};
const PARAMS_WRONG: Entry = {
  summary: 'The parameters are incomplete or wrong.',
  advice: "Compare params, count and instance of the source with the instance's settings in the console.",
  verdict: { kind: 'halt' },
};
const RETRY_EXPIRED = { kind: 'halt', retryEveryMs: 30 * MINUTE_MS } as const;
const NO_INSTANCE: Entry = {
  summary: 'The instance does not exist or has expired.',
  advice: 'Check instance and product of the source, or renew the instance.',
  verdict: RETRY_EXPIRED,
};
const EXPIRED: Entry = {
  summary: 'The instance has expired.',
  advice: 'Renew the instance in the console.',
  verdict: RETRY_EXPIRED,
};
const FROZEN: Entry = {
  summary: 'The instance is frozen or disabled.',
  advice: 'Enable the instance in the console, or ask the service why it is frozen.',
  verdict: RETRY_EXPIRED,
};
const LOOK_AGAIN_SOON = { kind: 'pause', retryEveryMs: MINUTE_MS } as const;
const NOT_BOUND: Entry = {
  summary: 'The instance authorises by terminal IP, and none is bound.',
  advice:
    "Bind this machine's public address in the console, or switch the instance to user name and password.",
  verdict: LOOK_AGAIN_SOON,
};
const NO_WHITELIST: Entry = {
  summary: 'The instance has no IP whitelist.',
  advice: "Put this machine's public address on the instance's whitelist in the console.",
  verdict: LOOK_AGAIN_SOON,
};
const NOT_AUTHORISED: Entry = {
  summary: 'This device is not authorised to call the operation.',
  advice: "Bind this machine's public address in the console.",
  verdict: LOOK_AGAIN_SOON,
};
const USED_UP = {
  kind: 'quota',
  retryFromMs: 5 * MINUTE_MS,
  retryToMs: 30 * MINUTE_MS,
  atMidnight: false,
} as const;
const CONNECTIONS: Entry = {
  summary: 'The instance holds more HTTP connections than its quota allows.',
  advice: 'Lower rotation.maxTunnelsPerMember or the load, or raise the quota in the console.',
  verdict: USED_UP,
  limitsConnections: true,
};
const USAGE: Entry = {
  summary: 'The usage quota of the instance is exceeded.',
  advice: 'Raise the quota in the console, or wait until it is renewed.',
  verdict: USED_UP,
};
const USAGE_OR_TRAFFIC: Entry = {
  ...USAGE,
  summary: 'The usage or traffic quota of the instance is exceeded.',
};
const RESTRICTED: Entry = {
  summary: 'The instance is restricted.',
  advice: 'The console says why; lift the restriction there, or ask the service.',
  verdict: USED_UP,
};
const NOTHING_THERE: Entry = {
  summary: 'No proxy exists at present under these conditions.',
  advice: 'If it lasts, loosen adr, timespan or the filters in params.',
  verdict: { kind: 'empty' },
};
const DISTINCT_TOTAL: Entry = {
  summary: 'The total of distinct IPs is used up: of today, or of what was paid for.',
  advice: "Wait for the service's midnight (UTC+8), or buy more.",
  verdict: { kind: 'quota', retryFromMs: 30 * MINUTE_MS, retryToMs: 30 * MINUTE_MS, atMidnight: true },
};
const OTHER_CLIENT: Entry = {
  summary: 'Another address was extracting with this application a moment ago.',
  advice: "Stop the other caller, which the service's text names; noria is silent for two minutes.",
  verdict: { kind: 'silence', ms: 120 * SECOND_MS },
};
const NO_MATCH: Entry = {
  summary: 'Nothing matches the filter.',
  advice: 'Try another filter, or none.',
  verdict: { kind: 'empty' },
};
const LOGIN_WRONG: Entry = {
  summary: 'The user name or the password is wrong.',
  advice: "Give the account's login and its password in account; the password of an instance is another one.",
  verdict: { kind: 'halt' },
};
const LIST_PARAMS_WRONG: Entry = { ...PARAMS_WRONG, advice: 'Check the instance or account and the filter.' };

/** What all extraction operations answer alike. 12005 is not listed for the free product. */
const EXTRACTION = {
  [SUCCESS]: OK,
  12001: KEY_WRONG,
  12002: TOO_OFTEN,
  12003: PARAMS_WRONG,
  12004: NO_INSTANCE,
  12006: FROZEN,
  12009: NOTHING_THERE,
} as const;

export const CODES: Readonly<Record<OperationNumber, Readonly<Record<string, Entry>>>> = {
  1: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: CONNECTIONS, 12010: DISTINCT_TOTAL },
  2: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE, 12010: NOT_AUTHORISED },
  3: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12010: NOT_AUTHORISED },
  4: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE, 12010: NOT_AUTHORISED },
  5: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE_OR_TRAFFIC, 12010: DISTINCT_TOTAL },
  6: { ...EXTRACTION, 12005: EXPIRED, 12007: NO_WHITELIST, 12008: RESTRICTED, 12019: NOT_AUTHORISED },
  7: { ...EXTRACTION, 12012: OTHER_CLIENT },
  8: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE, 17008: NOT_AUTHORISED },
  9: {
    [SUCCESS]: OK,
    14001: KEY_WRONG,
    14002: LIST_PARAMS_WRONG,
    14003: NO_INSTANCE,
    14004: EXPIRED,
    14005: FROZEN,
    14006: NO_MATCH,
  },
  10: { [SUCCESS]: OK, 18001: LIST_PARAMS_WRONG, 18002: LOGIN_WRONG, 18003: NO_MATCH },
};

/** What `code` means in an operation. One that is not listed there is a passing fault: tried again more and more slowly. */
export function meaningOf(operation: OperationNumber, code: string): CodeMeaning {
  const entries = CODES[operation];
  const entry = Object.hasOwn(entries, code) ? entries[code] : undefined;
  if (entry !== undefined) return { ...entry, listed: true };
  return {
    summary: `The service answered with code ${code}, which the specification does not list for operation ${operation}.`,
    advice: "The service's own text, in noria status, may say more.",
    verdict: { kind: 'back-off', retryFromMs: 30 * SECOND_MS, retryToMs: 10 * MINUTE_MS },
    listed: false,
  };
}

/** What to do about entries dropped for this reason. */
const DROPPED_ADVICE: Readonly<Record<string, string>> = {
  private: 'Set pool.allowPrivateAddresses: true if members on private addresses are what you draw.',
  own: "An address of noria's own is no member: ask the operator of the service why it is given out.",
};
const UNREADABLE_ADVICE = 'Compare format and textLayout with the extraction format of the instance.';

/** What the answer of a draw comes to: as its code says, but a success without a usable entry brought nothing. */
export function judgeDraw(
  product: Product,
  answer: Pick<DrawAnswer, 'code' | 'entries' | 'dropped'>,
): CodeMeaning {
  const meaning = meaningOf(OPERATIONS[product].number, answer.code);
  if (meaning.verdict.kind !== 'ok' || answer.entries.length > 0) return meaning;
  const reasons = Object.keys(answer.dropped);
  if (reasons.length === 0) return { ...NOTHING_THERE, listed: true };
  const counts = Object.entries(answer.dropped).map(([reason, count]) => `${reason} ${count}`);
  return {
    summary: `Every proxy of the answer was dropped: ${counts.join(', ')}.`,
    advice: [...new Set(reasons.map((reason) => DROPPED_ADVICE[reason] ?? UNREADABLE_ADVICE))].join(' '),
    verdict: { kind: 'empty' },
    allDropped: true,
    listed: true,
  };
}

/**
 * The least interval that the text of a 12002 names, ms: it says "at least N seconds" in Chinese.
 *
 * A lower bound only, and absent more often than not.
 */
export function intervalNamedMs(message: string): number | undefined {
  const seconds = /(\d{1,4})\s*秒/.exec(message)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * SECOND_MS;
}
