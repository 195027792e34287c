/**
 * Escapes characters that change how a terminal or editor shows the text around them: control characters (C0, DEL,
 * C1), line separators, and bidirectional, zero-width and other format characters. Clients, targets and the service
 * can send any of them.
 */

/** Matches all characters that this file escapes, except C0: JSON already escapes C0. */
const FORMAT = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;
const CONTROL = /\p{Cc}/gu;
const ESCAPE = '\u001b';
const STYLE = /\[[\d;]*m/y;

/**
 * Escapes DEL, C1, line separators and format characters, but not C0.
 *
 * @param backslash - the first characters of each escape. Pass two backslashes if `text` is JSON that is parsed before
 * it is shown.
 */
export function escapeFormat(text: string, backslash = '\\'): string {
  return text.replace(FORMAT, (character) => escaped(character, backslash));
}

export function escapeAll(text: string): string {
  return escapeFormat(text).replace(CONTROL, (character) => escaped(character, '\\'));
}

/**
 * Escapes control characters, line separators and format characters. Keeps noria's own layout: line feeds, tabs and
 * styles.
 */
export function escapeForTerminal(text: string): string {
  return escapeFormat(text).replace(CONTROL, (character, at: number, whole: string) => {
    STYLE.lastIndex = at + 1;
    const isLayout = character === '\n' || character === '\t' || (character === ESCAPE && STYLE.test(whole));
    return isLayout ? character : escaped(character, '\\');
  });
}

/** Writes one escape for each UTF-16 code unit, as JSON does. */
function escaped(character: string, backslash: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `${backslash}u${unit.toString(16).padStart(4, '0')}`).join('');
}
