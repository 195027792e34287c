/**
 * What is wrong with a text that is no YAML, in our own words and with its places.
 *
 * The library's messages are not used: some of them quote the text, which may hold a secret.
 */
import type { ErrorCode, LineCounter, YAMLParseError } from 'yaml';

/** A problem found before any key is looked at; `offset` into the text. */
export interface SyntaxProblem {
  readonly offset: number;
  readonly path: string;
  readonly message: string;
}

const WORDS: { readonly [Code in ErrorCode]?: string } = {
  TAB_AS_INDENT: 'a tab cannot indent YAML; use spaces',
  BAD_INDENT: 'the indentation does not fit what is above it',
  BLOCK_AS_IMPLICIT_KEY: 'two keys in one line; put a text that holds ": " in quotes, or begin a new line',
  BLOCK_IN_FLOW: 'something indented cannot stand inside { } or [ ]',
  BAD_SCALAR_START: 'a text cannot begin with this character; put it in quotes',
  BAD_DQ_ESCAPE: 'an unknown escape in double quotes; write \\\\ for a backslash, or use single quotes',
  MISSING_CHAR: 'a closing quote, bracket, comma or colon is missing here or above',
  MULTIPLE_DOCS: 'a second document begins here; one file is one document',
  MULTILINE_IMPLICIT_KEY: 'a key cannot go over several lines; is a colon or a quote missing?',
  KEY_OVER_1024_CHARS: 'this key is longer than 1024 characters; is a colon missing above?',
  BAD_ALIAS: 'this is not an alias; put a text that begins with * in quotes',
  MULTIPLE_ANCHORS: 'a value can have one anchor only',
  UNEXPECTED_TOKEN: 'this is unexpected here; is a colon, a dash or a quote missing?',
  IMPOSSIBLE: 'this is unexpected here; is a colon, a dash or a quote missing?',
};

/** A `${` without quotes inside a map or a list in one line, where YAML takes its brace for a map; what comes before it. */
const BARE_REFERENCE = /^([^#]*[{[,][^#]*[\s:,{[])\$\{/;

/**
 * One problem for each line that has any: what follows the first in a line mostly follows from it. Where a reference has
 * upset the braces, the rest follows from that.
 */
export function syntaxProblems(
  text: string,
  lines: LineCounter,
  errors: readonly YAMLParseError[],
): SyntaxProblem[] {
  const byLine = new Map<number, SyntaxProblem>();
  const references = new Map<number, SyntaxProblem>();
  for (const { code, pos } of errors) {
    const [offset] = pos;
    const { line } = lines.linePos(offset);
    if (byLine.has(line)) continue;
    byLine.set(line, { offset, path: '', message: WORDS[code] ?? `this is not valid YAML (${code})` });
    const start = lines.lineStarts[line - 1] ?? 0;
    const before = BARE_REFERENCE.exec(text.slice(start, lines.lineStarts[line]))?.[1];
    if (before === undefined) continue;
    const message = 'inside { } or [ ] a reference needs quotes: write "${NAME}"';
    references.set(line, { offset: start + before.length, path: '', message });
  }
  return [...(references.size > 0 ? references : byLine).values()];
}
