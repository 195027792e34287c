/** Text that is kept longer than what it was a piece of. */

/**
 * The same text, in memory of its own.
 *
 * A piece of a longer text is a view of it: kept, it keeps all of it, and a name out of a request's head would hold
 * the whole head, credentials too. Well-formed Unicode only: a lone surrogate would not stay what it is.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
