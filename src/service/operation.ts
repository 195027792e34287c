/**
 * What noria can draw from and list at the extraction service, and which facts describe an operation. operations.ts has
 * the table of these facts.
 */
import type { MemberProtocol } from '../core/protocol.ts';
import type { WireField } from './fields.ts';

/** The products, as the key `product` of a source names them. Each has one extraction operation. */
export const PRODUCTS = [
  'long-residential',
  'shared',
  'short-socks5',
  'short-classic',
  'residential-socks5',
  'short-pure',
  'free',
  'exclusive',
] as const;

export type Product = (typeof PRODUCTS)[number];

/** Everything that a source can draw from. `link` is an extraction link of any vendor. */
export const SOURCE_PRODUCTS = [...PRODUCTS, 'link'] as const;

export type SourceProduct = (typeof SOURCE_PRODUCTS)[number];
export type OperationNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;
/** The scope of a code: its meaning may differ between operations. */
export type CodeScope = OperationNumber | 'link';

export const FORMATS = ['json', 'xml', 'text'] as const;
export type Format = (typeof FORMATS)[number];

export const METHODS = ['GET', 'POST'] as const;
export type Method = (typeof METHODS)[number];

/** The values of `noria instances --status`, and the numbers that operation 10 uses for them. */
export const INSTANCE_STATUSES = { 'near-expiry': 1, active: 2, expired: 3 } as const;
export type InstanceStatus = keyof typeof INSTANCE_STATUSES;

/** One parameter of an operation. `about` completes the sentence "NAME is …". */
export type OperationParam = {
  /** The value that noria sends when a source does not set the parameter. Every required parameter has a default. */
  readonly default?: number;
  readonly about: string;
} & (
  | { readonly kind: 'whole'; readonly from: number; readonly to: number }
  /** One of a few numbers; each has a meaning. */
  | { readonly kind: 'choice'; readonly values: Readonly<Record<number, string>> }
  /** Keywords: a list, or a text with half-width commas. */
  | { readonly kind: 'keywords' }
  /** A label in the service's spelling. */
  | { readonly kind: 'label' }
);

/** What refill and the configuration need to know of everything that noria can draw from. */
export interface DrawRow {
  readonly number: CodeScope;
  /** All parameters other than the instance, its key, `count` and the format selector. */
  readonly params: Readonly<Record<string, OperationParam>>;
  readonly count: {
    /** The maximum number of proxies per call. Absent: each instance has its own maximum. */
    readonly max?: number;
    /** The maximum number of proxies that noria requests per call when the source sets none. */
    readonly defaultMax: number;
  };
  /** The minimum time from the start of one call to the start of the next. */
  readonly minIntervalMs: number;
  /** The recommended interval between calls; absent: the source must set it. */
  readonly defaultIntervalMs?: number;
  /** The lifetime of an entry that names none: `timespan` minutes (with `byTimespan`), but at least `atLeastMs`. */
  readonly defaultLifetime: { readonly byTimespan: boolean; readonly atLeastMs: number };
  /** The longest lifetime of a drawn IP, in minutes; absent: unknown. */
  readonly longestLifeMinutes?: number;
  /** The protocol of the members: fixed, selected by the parameter `pro`, or named by each entry. */
  readonly protocol: MemberProtocol | 'by-pro' | 'by-entry';
  /** The fields of an entry, which a custom Text layout may use. */
  readonly fields: readonly WireField[];
}

interface OperationRow {
  readonly number: OperationNumber;
  /** Relative to the base address. The trailing slash is required. */
  readonly path: string;
  /** The names of the parameters for the instance (or account) and its key. */
  readonly identity: { readonly name: string; readonly key: string };
  /** All parameters other than `identity`, `count` and the format selector. */
  readonly params: Readonly<Record<string, OperationParam>>;
}

/** An operation that draws proxies: 1 to 8. */
export interface DrawOperation extends OperationRow, DrawRow {
  readonly number: OperationNumber;
  readonly params: Readonly<Record<string, OperationParam>>;
  /** `base`: {base_url}. `extract-host`: the instance's own extraction server. */
  readonly server: 'base' | 'extract-host';
  /** The parameter that selects the format, and its values. */
  readonly selector: { readonly name: string } & Readonly<Record<Format, number>>;
  readonly defaultIntervalMs: number;
}

/** An extraction link. Its URL replaces the path and the parameters of an operation. */
export interface LinkOperation extends DrawRow {
  readonly number: 'link';
  readonly server: 'url';
}

/** An operation that returns a list in JSON: 9 and 10. */
export interface ListOperation extends OperationRow {
  readonly server: 'base';
  /** The field of the answer that contains the list. */
  readonly listField: string;
  /** The fields of a record and their types. The first one is required. */
  readonly fields: Readonly<Record<string, 'string' | 'integer'>>;
}

export type ListName = 'areas' | 'instances';
