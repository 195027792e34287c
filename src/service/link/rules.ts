/**
 * The rules for reading the answers of an extraction link: the keys of `answer` of a source. noria recognises every
 * part that has no rule.
 */

export const ANSWER_FORMATS = ['auto', 'json', 'text'] as const;
export type LinkFormat = (typeof ANSWER_FORMATS)[number];

/**
 * What an expiry field contains: the remaining lifetime in seconds or minutes, a date with a time, or Unix time in s or
 * ms.
 */
export const EXPIRY_KINDS = ['seconds', 'minutes', 'datetime', 'epoch'] as const;
export type ExpiryKind = (typeof EXPIRY_KINDS)[number];

/** The zone of a date and time that names none. Most vendors of short-lived proxies write the time of China. */
export const DEFAULT_ZONE = '+08:00';

export interface ExpiryRule {
  readonly field: string;
  readonly as: ExpiryKind;
  /** The zone of a date and time that names none: `+08:00`, `-05:00` or `Z`. */
  readonly zone: string;
  /** The field with the date and time from which `seconds` or `minutes` count; absent: they count from the call. */
  readonly since?: string | undefined;
}

/** Matches an answer in which the field has one of these values. */
export interface CodeRule {
  /** The path of the field in a JSON answer: `code`, or `status.code`. */
  readonly field: string;
  readonly is: readonly string[];
}

export interface LinkRules {
  readonly format: LinkFormat;
  /** The path of the list in a JSON answer; `.` is the whole answer. */
  readonly list?: string | undefined;
  /**
   * The fields of an entry that form its address, as `{ip}:{port}`. For entries that are text: the layout of the whole
   * entry.
   */
  readonly address?: string | undefined;
  readonly expiry?: ExpiryRule | undefined;
  /** The field with the exit IP. */
  readonly exitIp?: string | undefined;
  /** The fields with the location. */
  readonly location?: readonly string[] | undefined;
  /** Matches a success; every other answer is an error. */
  readonly ok?: CodeRule | undefined;
  readonly tooFast?: CodeRule | undefined;
  readonly denied?: CodeRule | undefined;
  readonly empty?: CodeRule | undefined;
}

/** Whether noria uses the user name and password of an entry. `require`: entries without them are dropped. */
export type EntryLogin = 'ignore' | 'use' | 'require';
