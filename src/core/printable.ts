/**
 * Escapes characters that change how a terminal or editor shows the text around them: control characters (C0, DEL, C1), and
 * bidirectional, zero-width and other format characters, and line separators. Clients, targets and the service can send any of them.
 */

/** Matches these characters, except C0, which JSON escapes itself. */
const FORMAT = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;
const CONTROL = /\p{Cc}/gu;
const ESCAPE = '\u001b';
/** The characters after ESC in a sequence that sets a style. */
const STYLE = /\[[\d;]*m/y;

/**
 * @param backslash - the text for a backslash. Inside a JSON text that is parsed before it is shown, it is two
 * backslashes.
 */
export function escapeFormat(text: string, backslash = '\\'): string {
  return text.replace(FORMAT, (character) => escaped(character, backslash));
}

/** Escapes everything, so that the text stays on one line and has no styles. */
export function escapeAll(text: string): string {
  return escapeFormat(text).replace(CONTROL, (character) => escaped(character, '\\'));
}

/** Escapes everything except noria's own layout: line feeds, tabs and styles. */
export function escapeForTerminal(text: string): string {
  return escapeFormat(text).replace(CONTROL, (character, at: number, whole: string) => {
    STYLE.lastIndex = at + 1;
    const isLayout = character === '\n' || character === '\t' || (character === ESCAPE && STYLE.test(whole));
    return isLayout ? character : escaped(character, '\\');
  });
}

/** Returns one escape for each UTF-16 code unit, as in JSON. */
function escaped(character: string, backslash: string): string {
  const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
  return units.map((unit) => `${backslash}u${unit.toString(16).padStart(4, '0')}`).join('');
}
