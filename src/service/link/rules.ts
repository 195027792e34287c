/**
 * The keys of `answer` of a link, and the paths by which they select values. Without a rule, noria recognises a field
 * by its name or the form of its value.
 */

export const ANSWER_FORMATS = ['auto', 'json', 'text'] as const;
type LinkFormat = (typeof ANSWER_FORMATS)[number];

/** The remaining lifetime in seconds or minutes, a date and time, or Unix time in s or ms. */
export const EXPIRY_KINDS = ['seconds', 'minutes', 'datetime', 'epoch'] as const;
export type ExpiryKind = (typeof EXPIRY_KINDS)[number];

/** The time zone of a date and time without a zone. Most vendors of short-lived proxies send the time of China. */
export const DEFAULT_ZONE = '+08:00';

export interface CodeRule {
  readonly field: string;
  readonly is: readonly string[];
}

export interface LinkRules {
  readonly format: LinkFormat;
  readonly list?: string | undefined;
  /** `{ip}:{port}`, of an object's fields; for entries that are text, the layout of the whole entry. */
  readonly address?: string | undefined;
  readonly expiry?:
    | {
        readonly field: string;
        readonly as: ExpiryKind;
        readonly zone: string;
        /** When a lifetime in `seconds` or `minutes` began; if absent, when the answer arrived. */
        readonly since?: string | undefined;
      }
    | undefined;
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

export const ROOT = '.';

export function valueAtPath(answer: unknown, path: string): unknown {
  if (path === ROOT) return answer;
  let value = answer;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = Reflect.get(value, name);
  }
  return value;
}

interface JsonNode {
  readonly path: string;
  readonly value: unknown;
  readonly isInList: boolean;
}

/** Vendors put the list near the beginning. */
const MAX_NODES = 5_000;

/** The values at all levels, the outermost first; of each list only the first item. */
export function nodesOf(answer: unknown): JsonNode[] {
  const nodes: JsonNode[] = [{ path: ROOT, value: answer, isInList: false }];
  for (const { path, value, isInList } of nodes) {
    if (typeof value !== 'object' || value === null) continue;
    const isList = Array.isArray(value);
    const names = Object.keys(isList ? value.slice(0, 1) : value);
    for (const name of names.slice(0, MAX_NODES - nodes.length)) {
      nodes.push({
        path: path === ROOT ? name : `${path}.${name}`,
        value: Reflect.get(value, name),
        isInList: isInList || isList,
      });
    }
  }
  return nodes;
}
