/**
 * Describes YAML syntax errors, each with its place.
 *
 * It does not use the messages of the YAML library, because some of these quote the text, which may contain a secret.
 */
import type { ErrorCode, LineCounter, YAMLParseError } from 'yaml';

/** A problem in the text, found before the check against the schema. */
export interface SyntaxProblem {
  readonly offset: number;
  readonly path: string;
  readonly message: string;
}

const WORDS: { readonly [Code in ErrorCode]?: string } = {
  TAB_AS_INDENT: 'YAML cannot be indented with tabs; use spaces',
  BAD_INDENT: 'the indentation does not match the lines above',
  BLOCK_AS_IMPLICIT_KEY:
    'there are two keys in one line; quote a text that contains ": ", or start a new line',
  BLOCK_IN_FLOW: 'indented keys and lists are not allowed inside { } or [ ]',
  BAD_SCALAR_START: 'a text that starts with this character needs quotes',
  BAD_DQ_ESCAPE: 'unknown escape sequence in double quotes; write \\\\ for a backslash, or use single quotes',
  MISSING_CHAR: 'a closing quote, bracket, comma or colon is missing here or above',
  MULTIPLE_DOCS: 'a second YAML document starts here; a file may contain only one',
  MULTILINE_IMPLICIT_KEY: 'a key spans several lines; is a colon or a quote missing?',
  KEY_OVER_1024_CHARS: 'this key is longer than 1024 characters; is a colon missing above?',
  BAD_ALIAS: 'this is not a valid alias; a text that starts with * needs quotes',
  MULTIPLE_ANCHORS: 'a value can have only one anchor',
  UNEXPECTED_TOKEN: 'this is unexpected here; is a colon, a dash or a quote missing?',
  IMPOSSIBLE: 'this is unexpected here; is a colon, a dash or a quote missing?',
};

/**
 * Matches an unquoted `${` inside `{ }` or `[ ]`, where YAML reads the brace as the start of a map. Captures the text
 * before the `${`.
 */
const BARE_REFERENCE = /^(?=[^#{[,]*[{[,])([^#]*[\s:,{[])\$\{/;

/**
 * Returns at most one problem for each line, because later errors in a line usually result from the first one. An
 * unquoted reference also causes errors in other lines. So if the text has unquoted references, returns only the
 * problems about these references.
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
    const message = 'a reference inside { } or [ ] needs quotes: "${NAME}"';
    references.set(line, { offset: start + before.length, path: '', message });
  }
  return [...(references.size > 0 ? references : byLine).values()];
}
