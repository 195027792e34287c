/**
 * A copy of a text, for storing a part of a longer text.
 *
 * V8 represents a part of a string as a view of the whole string. Storing a name from a request head would keep the whole
 * head in memory, including credentials. Only for well-formed Unicode: a lone surrogate would change.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf8').toString('utf8');
}
