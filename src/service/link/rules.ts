/** How to read the answers of an extraction link: the keys of `answer` of a source. A part that is not set is recognised. */

export const ANSWER_FORMATS = ['auto', 'json', 'text'] as const;
export type LinkFormat = (typeof ANSWER_FORMATS)[number];

/** What an expiry field contains: the life left in seconds or minutes, a date with a time, or Unix time in s or ms. */
export const EXPIRY_KINDS = ['seconds', 'minutes', 'datetime', 'epoch'] as const;
export type ExpiryKind = (typeof EXPIRY_KINDS)[number];

/** Applies to a date and time without a zone. Most vendors of short-lived proxies write the time of China. */
export const DEFAULT_ZONE = '+08:00';

export interface ExpiryRule {
  readonly field: string;
  readonly as: ExpiryKind;
  /** `+08:00`, `-05:00` or `Z`: of a date and time that has no zone. */
  readonly zone: string;
  /** The field with the date and time from which `seconds` or `minutes` count; absent: from the call. */
  readonly since?: string | undefined;
}

/** Matches an answer whose field has one of these values. */
export interface CodeRule {
  /** The path of the field in a JSON answer: `code`, or `status.code`. */
  readonly field: string;
  readonly is: readonly string[];
}

export interface LinkRules {
  readonly format: LinkFormat;
  /** The path of the list in a JSON answer; `.` is the whole answer. */
  readonly list?: string | undefined;
  /** Fields of an entry that make its address, as `{ip}:{port}`. For entries that are text: the layout of the whole entry. */
  readonly address?: string | undefined;
  readonly expiry?: ExpiryRule | undefined;
  /** The field with the exit IP. */
  readonly exitIp?: string | undefined;
  /** The fields with the location. */
  readonly location?: readonly string[] | undefined;
  /** Every other answer is an error. */
  readonly ok?: CodeRule | undefined;
  readonly tooFast?: CodeRule | undefined;
  readonly denied?: CodeRule | undefined;
  readonly empty?: CodeRule | undefined;
}

/** Whether an entry's own user name and password are used. `require`: entries without them are dropped. */
export type EntryLogin = 'ignore' | 'use' | 'require';
