/**
 * The rules for the answers of an extraction link: the keys of `answer` in the configuration of a source. Without a
 * rule, noria recognises a field by its name or by the form of its value.
 */

export const ANSWER_FORMATS = ['auto', 'json', 'text'] as const;
type LinkFormat = (typeof ANSWER_FORMATS)[number];

/**
 * What an expiry field contains: the remaining lifetime in seconds or minutes, a date and time, or Unix time in s or
 * ms.
 */
export const EXPIRY_KINDS = ['seconds', 'minutes', 'datetime', 'epoch'] as const;
export type ExpiryKind = (typeof EXPIRY_KINDS)[number];

/** The time zone of a date and time without a zone. Most vendors of short-lived proxies send the time of China. */
export const DEFAULT_ZONE = '+08:00';

interface ExpiryRule {
  readonly field: string;
  readonly as: ExpiryKind;
  /** The time zone of a date and time without a zone: `+08:00`, `-05:00` or `Z`. */
  readonly zone: string;
  /**
   * The field with the date and time at which a lifetime in `seconds` or `minutes` began. If absent, the lifetime began when the
   * answer arrived.
   */
  readonly since?: string | undefined;
}

/** Matches an answer if the value of `field` is one of the texts in `is`. */
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
   * The address of an entry, with its fields in braces: `{ip}:{port}`. For entries that are text: the layout of the
   * whole entry.
   */
  readonly address?: string | undefined;
  readonly expiry?: ExpiryRule | undefined;
  readonly exitIp?: string | undefined;
  readonly location?: readonly string[] | undefined;
  /** Matches a success. With this rule, every other answer is an error. */
  readonly ok?: CodeRule | undefined;
  readonly tooFast?: CodeRule | undefined;
  readonly denied?: CodeRule | undefined;
  readonly empty?: CodeRule | undefined;
}

/** Whether noria uses the user name and password in an entry. `require`: noria also drops entries without them. */
export type EntryLogin = 'ignore' | 'use' | 'require';
