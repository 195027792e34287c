/**
 * The codes of the service: what each means, how noria reacts, and what the operator can do.
 *
 * The meaning of a code depends on the operation: 12007, 12008 and 12010 differ between operations. Source: the
 * specification, section "Errors". docs/service.md lists the same codes, checked by test/held/service.test.ts. noria
 * does not interpret the service's text, because its wording and encoding vary. One exception: `intervalNamedMs`
 * reads a number from it.
 */
import { HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import type { DrawAnswer } from './answer.ts';
import { type CodeScope, OPERATIONS, type SourceProduct } from './operations.ts';

export type CodeVerdict =
  | { readonly kind: 'ok' }
  | { readonly kind: 'empty' }
  | { readonly kind: 'slow-down' }
  /** The service requires a pause. noria makes no call for `ms`, because an earlier call would restart the pause. */
  | { readonly kind: 'silence'; readonly ms: number }
  /** The cause ends by itself, or the operator removes it in the console of the service. */
  | { readonly kind: 'pause'; readonly retryEveryMs: number }
  /** A quota is used up. `atMidnight`: also retries when the service's day begins. */
  | (Doubling & { readonly kind: 'quota'; readonly atMidnight: boolean })
  /** The operator has to act. noria retries every `retryEveryMs`; without `retryEveryMs`, it does not retry. */
  | { readonly kind: 'halt'; readonly retryEveryMs?: number }
  /** The meaning of the answer is unknown. */
  | (Doubling & { readonly kind: 'back-off' });

/** Each wait is twice the last one. */
interface Doubling {
  readonly retryFromMs: number;
  readonly retryToMs: number;
}

export interface CodeMeaning {
  readonly summary: string;
  readonly advice: string;
  readonly verdict: CodeVerdict;
  /** Absent: perhaps only this noria gets the refusal, because of its machine, key or parameters. */
  readonly concernsInstance?: true;
  readonly allDropped?: true;
  /** The service does not know, or does not accept, the address of this machine. A vendor may not tell it from other causes. */
  readonly refusesAddress?: true;
  /** Halves the limit of open tunnels, or without one the number of those open now, until a success. */
  readonly limitsConnections?: true;
}

export const SUCCESS = '10001';

/** The assumed time zone of the service's days: UTC+8. The specification names no time zone. */
export const SERVICE_ZONE_OFFSET_MS = 8 * HOUR_MS;

const OK: CodeMeaning = { summary: 'The call succeeded.', advice: '', verdict: { kind: 'ok' } };
const KEY_WRONG: CodeMeaning = {
  summary: 'The key is wrong.',
  advice:
    "Set password to the instance's own password, or akey to its 16-character key; the account's password and the full MD5 do not work. The command noria key prints the key of a password.",
  verdict: { kind: 'halt' },
};
const TOO_OFTEN: CodeMeaning = {
  summary: 'The service is called too often.',
  advice: 'Raise interval of the source. If another program uses the same instance, stop that program.',
  verdict: { kind: 'slow-down' },
};
const PARAMS_WRONG: CodeMeaning = {
  summary: 'The parameters are incomplete or wrong.',
  advice:
    'Compare params, count and instance of the source with the settings of the instance in the console of the service.',
  verdict: { kind: 'halt' },
};
const RETRY_EVERY_HALF_HOUR = { kind: 'halt', retryEveryMs: 30 * MINUTE_MS } as const;
const NO_INSTANCE: CodeMeaning = {
  summary: 'The instance does not exist or has expired.',
  advice: 'Check instance and product of the source, or renew the instance.',
  verdict: RETRY_EVERY_HALF_HOUR,
  concernsInstance: true,
};
const EXPIRED: CodeMeaning = {
  summary: 'The instance has expired.',
  advice: 'Renew the instance in the console of the service.',
  verdict: RETRY_EVERY_HALF_HOUR,
  concernsInstance: true,
};
const FROZEN: CodeMeaning = {
  summary: 'The instance is frozen or disabled.',
  advice: 'Enable the instance in the console of the service, or ask the service why it is frozen.',
  verdict: RETRY_EVERY_HALF_HOUR,
  concernsInstance: true,
};
const RETRY_EACH_MINUTE = { kind: 'pause', retryEveryMs: MINUTE_MS } as const;
const NOT_BOUND: CodeMeaning = {
  summary: 'The instance authorises clients by terminal IP (their address), and no address is bound.',
  advice:
    "Bind this machine's public address in the console of the service, or switch the instance to user name and password.",
  verdict: RETRY_EACH_MINUTE,
  refusesAddress: true,
};
const NO_WHITELIST: CodeMeaning = {
  summary: 'The instance has no IP whitelist.',
  advice: "Add this machine's public address to the instance's whitelist in the console of the service.",
  verdict: RETRY_EACH_MINUTE,
  refusesAddress: true,
};
const NOT_AUTHORISED: CodeMeaning = {
  summary: 'This device is not authorised to call the operation.',
  advice: "Bind this machine's public address in the console of the service.",
  verdict: RETRY_EACH_MINUTE,
  refusesAddress: true,
};
const USED_UP = {
  kind: 'quota',
  retryFromMs: 5 * MINUTE_MS,
  retryToMs: 30 * MINUTE_MS,
  atMidnight: false,
} as const;
const CONNECTIONS: CodeMeaning = {
  summary: 'The instance holds more HTTP connections than its quota allows.',
  advice: 'Lower rotation.maxTunnelsPerMember or the load, or raise the quota in the console of the service.',
  verdict: USED_UP,
  concernsInstance: true,
  limitsConnections: true,
};
const USAGE: CodeMeaning = {
  summary: 'The usage quota of the instance is exceeded.',
  advice: 'Raise the quota in the console of the service, or wait until the quota is renewed.',
  verdict: USED_UP,
  concernsInstance: true,
};
const USAGE_OR_TRAFFIC: CodeMeaning = {
  ...USAGE,
  summary: 'The usage or traffic quota of the instance is exceeded.',
};
const RESTRICTED: CodeMeaning = {
  summary: 'The instance is restricted.',
  advice:
    'Look up the reason in the console of the service and remove the restriction there, or ask the service.',
  verdict: USED_UP,
  concernsInstance: true,
};
const NO_PROXY: CodeMeaning = {
  summary: 'The service has no proxy that matches the parameters at the moment.',
  advice: 'If this continues, relax adr, timespan or the other filters in params of the source.',
  verdict: { kind: 'empty' },
};
const IPS_USED_UP: CodeMeaning = {
  summary: 'The quota of distinct IPs is used up, for today or in total.',
  advice: "Wait for the service's midnight (UTC+8), or buy more IPs.",
  verdict: { kind: 'quota', retryFromMs: 30 * MINUTE_MS, retryToMs: 30 * MINUTE_MS, atMidnight: true },
  concernsInstance: true,
};
const OTHER_CLIENT: CodeMeaning = {
  summary: 'Another address called the service with this application a moment ago.',
  advice:
    "Stop the other caller, whose address is in the service's message. noria makes no call for two minutes.",
  verdict: { kind: 'silence', ms: 120 * SECOND_MS },
};
const NO_MATCH: CodeMeaning = {
  summary: 'No entry of the list matches the filter of the command.',
  advice: 'Change or remove the option that filters the list.',
  verdict: { kind: 'empty' },
};
const LOGIN_WRONG: CodeMeaning = {
  summary: 'The user name or the password is wrong.',
  advice:
    'Set account.username and account.password to the login of the account, not to the password of an instance.',
  verdict: { kind: 'halt' },
};
const LIST_PARAMS_WRONG: CodeMeaning = {
  ...PARAMS_WRONG,
  advice: 'Check the instance or the account in the configuration, and the options of the command.',
};

/** Each vendor has its own codes; the rules of the source decide which of these applies. */
const LINK = {
  [SUCCESS]: OK,
  'too-fast': {
    summary: 'The link is called too often.',
    advice: 'Raise interval of the source. If another program uses the same link, stop that program.',
    verdict: { kind: 'slow-down' },
  },
  denied: {
    summary: 'The vendor denies the call.',
    advice:
      "Check in the vendor's console that this machine's public address is on the whitelist, that the order has not expired, and that the url is complete.",
    verdict: RETRY_EVERY_HALF_HOUR,
    refusesAddress: true,
  },
  empty: {
    summary: 'The vendor has no proxy for this link at the moment.',
    advice: 'If this continues, relax the filters in the url of the source.',
    verdict: { kind: 'empty' },
  },
  refused: {
    summary: 'The link answered with an error.',
    advice:
      "Run noria status: it shows the vendor's own text, which says why. To tell noria how to react to the vendor's codes, set tooFast, denied and empty in `answer` of the source.",
    verdict: { kind: 'back-off', retryFromMs: 30 * SECOND_MS, retryToMs: 10 * MINUTE_MS },
  },
} as const satisfies Record<string, CodeMeaning>;

const EXTRACTION = {
  [SUCCESS]: OK,
  12001: KEY_WRONG,
  12002: TOO_OFTEN,
  12003: PARAMS_WRONG,
  12004: NO_INSTANCE,
  12006: FROZEN,
  12009: NO_PROXY,
} as const;

export const CODES: Readonly<Record<CodeScope, Readonly<Record<string, CodeMeaning>>>> = {
  1: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: CONNECTIONS, 12010: IPS_USED_UP },
  2: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE, 12010: NOT_AUTHORISED },
  3: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12010: NOT_AUTHORISED },
  4: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE, 12010: NOT_AUTHORISED },
  5: { ...EXTRACTION, 12005: EXPIRED, 12007: NOT_BOUND, 12008: USAGE_OR_TRAFFIC, 12010: IPS_USED_UP },
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
  link: LINK,
};

/** What a code means in an operation. noria treats a code that the operation does not list as a temporary fault. */
export function meaningOf(operation: CodeScope, code: string): CodeMeaning {
  const entries = CODES[operation];
  const entry = Object.hasOwn(entries, code) ? entries[code] : undefined;
  if (entry !== undefined) return entry;
  return {
    summary: `The service answered with code ${code}, which the specification does not list for operation ${operation}.`,
    advice: "Run noria status: it shows the service's own text, which may explain the code.",
    verdict: { kind: 'back-off', retryFromMs: 30 * SECOND_MS, retryToMs: 10 * MINUTE_MS },
  };
}

const DROPPED_ADVICE: Readonly<Record<string, string>> = {
  private: 'If you expect members at private addresses, set pool.allowPrivateAddresses to true.',
  own: 'The service returned an address of this noria, which cannot be a member: ask the service why.',
  expired:
    "Check this machine's clock. If the times in the answer are not in China's time zone, set answer.expiry.zone of the source.",
  credentials:
    'The entries contain no user name and password, but upstream.auth is entry. Set upstream.auth to auto, or to a user name and a password.',
};
const UNREADABLE_ADVICE = 'Compare format and textLayout with the extraction format of the instance.';
const UNREADABLE_LINK_ADVICE = 'Compare the key `answer` of the source with what the link returns.';

/** The code alone does not decide: a success may have no entries, only dropped ones, or say that no IP is left. */
export function judgeDraw(
  product: SourceProduct,
  answer: Pick<DrawAnswer, 'code' | 'entries' | 'dropped' | 'quota'>,
): CodeMeaning {
  const meaning = meaningOf(OPERATIONS[product].number, answer.code);
  if (meaning.verdict.kind !== 'ok') return meaning;
  if (answer.entries.length > 0) return answer.quota.remaining === 0 ? IPS_USED_UP : meaning;
  const reasons = Object.keys(answer.dropped);
  if (reasons.length === 0 && product === 'list') return meaning; // a list may be empty
  if (reasons.length === 0) return product === 'link' ? LINK.empty : NO_PROXY;
  const unreadable = product === 'link' ? UNREADABLE_LINK_ADVICE : UNREADABLE_ADVICE;
  const counts = Object.entries(answer.dropped).map(([reason, count]) => `${reason} ${count}`);
  return {
    summary: `noria dropped all proxies of the answer, by reason: ${counts.join(', ')}.`,
    advice: [...new Set(reasons.map((reason) => DROPPED_ADVICE[reason] ?? unreadable))].join(' '),
    verdict: { kind: 'empty' },
    allDropped: true,
  };
}

/** The minimum interval that the text of code 12002 names in Chinese ("at least N seconds"). */
export function intervalNamedMs(message: string): number | undefined {
  const seconds = /(\d{1,4})\s*秒/.exec(message)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * SECOND_MS;
}
