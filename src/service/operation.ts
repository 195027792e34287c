/** The products of the extraction service, and the types of the table in operations.ts. */
import type { MemberProtocol } from '../core/protocol.ts';
import type { WireField } from './fields.ts';

/** The products: the values of the key `product` of a source. Each product has one extraction operation. */
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

/** All values of the key `product` of a source. `link` is an extraction link of any vendor. */
export const SOURCE_PRODUCTS = [...PRODUCTS, 'link'] as const;

export type SourceProduct = (typeof SOURCE_PRODUCTS)[number];
export type OperationNumber = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10;
/** The operation in which the service uses a code. The same code may have another meaning in another operation. */
export type CodeScope = OperationNumber | 'link';

export const FORMATS = ['json', 'xml', 'text'] as const;
export type Format = (typeof FORMATS)[number];

export const METHODS = ['GET', 'POST'] as const;
export type Method = (typeof METHODS)[number];

/** The statuses of an instance, each with its number in a request of operation 10. */
export const INSTANCE_STATUSES = { 'near-expiry': 1, active: 2, expired: 3 } as const;
export type InstanceStatus = keyof typeof INSTANCE_STATUSES;

/**
 * One parameter of an operation. `about` describes the parameter and is the end of a sentence: "timespan is the minimum
 * lifetime".
 */
export type OperationParam = {
  /** The value that noria sends if a source does not set the parameter. Every required parameter has a default. */
  readonly default?: number;
  readonly about: string;
} & (
  | { readonly kind: 'whole'; readonly from: number; readonly to: number }
  /** A number that selects one of several meanings. `values` lists all numbers and their meanings. */
  | { readonly kind: 'choice'; readonly values: Readonly<Record<number, string>> }
  /** Keywords: a list, or a text with ASCII commas. */
  | { readonly kind: 'keywords' }
  /** A text in the spelling of the service. */
  | { readonly kind: 'label' }
);

/** What refill and the configuration need to know about an operation that draws proxies, or about a link. */
export interface DrawRow {
  readonly number: CodeScope;
  /** The parameters that a source can set in `params`, except `count`. */
  readonly params: Readonly<Record<string, OperationParam>>;
  readonly count: {
    /** The maximum number of proxies per call. Absent if each instance has its own maximum. */
    readonly max?: number;
    /** The maximum number of proxies that noria requests per call if the source sets no maximum. */
    readonly defaultMax: number;
  };
  /** The minimum time in ms from the start of one call to the start of the next. */
  readonly minIntervalMs: number;
  /** The interval between calls, in ms, that the service recommends. If absent, the source must set an interval. */
  readonly defaultIntervalMs?: number;
  /**
   * The lifetime that noria assumes if the answer contains none: `atLeastMs`. With `byTimespan`, it is the value of the
   * parameter `timespan` (in minutes), but at least `atLeastMs`.
   */
  readonly defaultLifetime: { readonly byTimespan: boolean; readonly atLeastMs: number };
  /** The maximum lifetime of a drawn IP in minutes; absent if it is unknown. */
  readonly maxLifetimeMinutes?: number;
  /**
   * The protocol of the members. `by-pro`: the parameter `pro` selects the protocol. `by-entry`: each entry names its own
   * protocol.
   */
  readonly protocol: MemberProtocol | 'by-pro' | 'by-entry';
  /** The fields of an entry. A custom Text layout may use them. */
  readonly fields: readonly WireField[];
}

interface OperationRow {
  readonly number: OperationNumber;
  /** The path, relative to the base address. It must end with a slash. */
  readonly path: string;
  /**
   * The names of two parameters. `name`: the parameter for the id of the instance or account. `key`: the parameter for
   * the key.
   */
  readonly identity: { readonly name: string; readonly key: string };
  /** The parameters apart from those in `identity`. `count` and the parameter for the format are not included. */
  readonly params: Readonly<Record<string, OperationParam>>;
}

/** One of the operations 1 to 8, which draw proxies. */
export interface DrawOperation extends OperationRow, DrawRow {
  readonly number: OperationNumber;
  readonly params: Readonly<Record<string, OperationParam>>;
  /**
   * The server of the operation. `base`: {base_url} of the specification. `extract-host`: the instance's own extraction
   * server.
   */
  readonly server: 'base' | 'extract-host';
  /** The parameter that selects the format, and its value for each format. */
  readonly selector: { readonly name: string } & Readonly<Record<Format, number>>;
  readonly defaultIntervalMs: number;
}

/** An extraction link. Its URL takes the place of the path and the parameters. */
export interface LinkOperation extends DrawRow {
  readonly number: 'link';
  readonly server: 'url';
}

/** An operation that returns a list in JSON (9 and 10). */
export interface ListOperation extends OperationRow {
  readonly server: 'base';
  /** The field of the answer that contains the list. */
  readonly listField: string;
  /** The fields of a record and their types. Every record must have the first field. */
  readonly fields: Readonly<Record<string, 'string' | 'integer'>>;
}

export type ListName = 'areas' | 'instances';
