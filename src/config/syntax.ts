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

/** Characters that Chinese keyboards type in place of YAML's, with their names and with what to type. */
const FULL_WIDTH = new Map([
  ['：', ['full-width colon', ': and a space']],
  ['，', ['full-width comma', ', and a space']],
  ['、', ['ideographic comma', ', and a space']],
  ['“', ['quotation mark', '"']],
  ['”', ['quotation mark', '"']],
  ['‘', ['quotation mark', "'"]],
  ['’', ['quotation mark', "'"]],
  ['｛', ['full-width brace', '{']],
  ['｝', ['full-width brace', '}']],
  ['［', ['full-width bracket', '[']],
  ['］', ['full-width bracket', ']']],
  ['【', ['full-width bracket', '[']],
  ['】', ['full-width bracket', ']']],
  ['－', ['full-width dash', '-']],
  ['＃', ['full-width number sign', '#']],
  ['\u3000', ['full-width space', 'a space']],
]);
/** A quoted text, which may lack its end, or a comment. */
const QUOTED_OR_COMMENT = /"[^"]*"?|'[^']*'?|#.*/g;

/** Finds the first full-width character in a text. Returns its index, and a message that says what to type. */
export function fullWidthIn(text: string): { readonly index: number; readonly message: string } | undefined {
  const index = text.search(/[：，、“”‘’｛｝［］【】－＃\u3000]/);
  const [name, typed] = FULL_WIDTH.get(text.charAt(index)) ?? [];
  if (name === undefined) return undefined;
  const message = `contains the ${name} ${text.charAt(index).trim()}`.trimEnd();
  return { index, message: `${message}; type ${typed} in its place` };
}

/**
 * Returns at most one problem for each line, because later errors in a line usually result from the first one. An
 * unquoted reference or a full-width character also causes errors in other lines. So if the text has any of these,
 * returns only the problems about them.
 */
export function syntaxProblems(
  text: string,
  lines: LineCounter,
  errors: readonly YAMLParseError[],
): SyntaxProblem[] {
  const byLine = new Map<number, SyntaxProblem>();
  const causes = new Map<number, SyntaxProblem>();
  for (const { code, pos } of errors) {
    const [offset] = pos;
    const { line } = lines.linePos(offset);
    if (byLine.has(line)) continue;
    byLine.set(line, { offset, path: '', message: WORDS[code] ?? `this is not valid YAML (${code})` });
    const start = lines.lineStarts[line - 1] ?? 0;
    const content = text.slice(start, lines.lineStarts[line]);
    const before = BARE_REFERENCE.exec(content)?.[1];
    const wide = fullWidthIn(content.replace(QUOTED_OR_COMMENT, (part) => ' '.repeat(part.length)));
    if (before !== undefined) {
      const message = 'a reference inside { } or [ ] needs quotes: "${NAME}"';
      causes.set(line, { offset: start + before.length, path: '', message });
    } else if (wide !== undefined) {
      causes.set(line, { offset: start + wide.index, path: '', message: `the line ${wide.message}` });
    }
  }
  return [...(causes.size > 0 ? causes : byLine).values()];
}
