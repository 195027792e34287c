/** Mutants that change nothing that anybody can see: the scores of `npm run mutants` leave them out. Ordered by file. */
export const EQUIVALENT: readonly (readonly [
  file: string,
  /** Part of the line where the change begins; it occurs once in the file. */
  line: string,
  from: string,
  to: string,
  why: string,
])[] = [];
