/** Paths into a JSON answer, such as `data.proxy_list`. All functions are pure, and read only own properties. */

/** The path that selects the whole answer. */
export const ROOT = '.';

/** @returns undefined if the path leads to no value. */
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
  /** Whether the value is an item of a list, or inside an item. */
  readonly isInList: boolean;
}

/**
 * The maximum number of values of an answer in which noria looks for the list. Vendors put the list near the beginning.
 */
const MAX_NODES = 5_000;

/**
 * Returns the values at all levels of an answer, the outermost first; at most MAX_NODES. Of each list, it returns only
 * the first item.
 */
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
