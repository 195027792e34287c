/**
 * Copies a text, so that a stored part of a longer text does not keep the longer text in memory.
 *
 * V8 represents a part of a string as a view of the whole string. Without the copy, a stored name from a request head
 * would keep the whole head in memory, including credentials. Use it only for well-formed Unicode: the copy replaces
 * lone surrogates.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
