/** A YAML document as a tree of texts, lists and maps, and paths into the tree. */

/** A text, `null` for a key without a value, a list, or a map. */
export type Tree = string | null | readonly Tree[] | TreeMap;

export interface TreeMap {
  readonly [key: string]: Tree;
}

/** The keys and list indexes that lead to a value. */
export type Path = readonly (string | number)[];

/** The path as text, for messages: `sources[0].params.adr`. */
export function pathText(path: Path): string {
  return path
    .map((part, index) => (typeof part === 'number' ? `[${part}]` : index === 0 ? part : `.${part}`))
    .join('');
}

export function isTreeList(tree: Tree | undefined): tree is readonly Tree[] {
  return Array.isArray(tree);
}

export function isTreeMap(tree: Tree | undefined): tree is TreeMap {
  return typeof tree === 'object' && tree !== null && !isTreeList(tree);
}

export function valueAt(tree: Tree | undefined, path: readonly PropertyKey[]): Tree | undefined {
  return path.reduce<Tree | undefined>((at, key) => {
    if (isTreeList(at)) return at[Number(key)];
    return isTreeMap(at) && Object.hasOwn(at, key) ? at[String(key)] : undefined;
  }, tree);
}
