/** Mutants that change nothing that anybody can see: the scores of `npm run mutants` leave them out. Ordered by file. */
export const EQUIVALENT: readonly (readonly [
  file: string,
  /** Part of the line where the change begins; it occurs once in the file. */
  line: string,
  from: string,
  to: string,
  why: string,
])[] = [
  [
    'src/state/folder.ts',
    'if (await isFolder(folder)) return;',
    'await isFolder(folder)',
    'false',
    'mkdir says that it exists',
  ],
  [
    'src/state/folder.ts',
    'if (parent !== folder) await',
    'parent !== folder',
    'true',
    'a root is there (but for a missing drive of Windows)',
  ],
  ['src/state/folder.ts', '() => false, // ignored', '() => false', '() => undefined', 'both are falsy'],
  [
    'src/state/pace-file.ts',
    'const isFirstLater',
    'sinceLatestArrival(first, now) <= sinceLatestArrival(second, now)',
    'sinceLatestArrival(first, now) < sinceLatestArrival(second, now)',
    'of two that arrived at once, either is the later one',
  ],
];
