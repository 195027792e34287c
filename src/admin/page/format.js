// @ts-check
/** Formats numbers, sizes and times, and escapes texts from outside noria. */
import { LANGUAGE, LOCALE } from './language.js';
import { TEXTS } from './texts.js';

const COUNT = new Intl.NumberFormat(LANGUAGE);
const ONE_DIGIT = new Intl.NumberFormat(LANGUAGE, { maximumFractionDigits: 1 });
const TWO_DIGITS = new Intl.NumberFormat(LANGUAGE, { maximumSignificantDigits: 2 });
const MOMENT = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'medium' });
const CLOCK = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
/**
 * The characters that src/core/printable.ts also escapes: control, bidirectional, zero-width and other format
 * characters, and line separators.
 */
const FORMAT = /[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu;

/**
 * Escapes characters that change how the text around them looks. Clients, targets and the service can send texts with
 * such characters.
 * @param {string} text
 */
export function printable(text) {
  return text.replace(FORMAT, (character) => {
    const units = Array.from({ length: character.length }, (_, index) => character.charCodeAt(index));
    return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('');
  });
}

/** @param {number} value */
export function count(value) {
  return COUNT.format(value);
}

/**
 * Returns a number with its noun: `1 member`, `5 members`.
 *
 * @param {number} value
 * @param {readonly string[]} forms - singular and plural
 */
export function counted(value, [one, many]) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/**
 * Formats a rate. Smaller rates get more decimals.
 *
 * @param {number} value
 */
export function rate(value) {
  if (value >= 100) return COUNT.format(Math.round(value));
  return value >= 10 ? ONE_DIGIT.format(value) : TWO_DIGITS.format(value);
}

/**
 * Formats a duration with one or two units: `12 s`, `2 min 5 s`, `3 h 12 min`, `4 d 2 h`.
 *
 * @param {number} seconds
 */
export function duration(seconds) {
  const { second, minute, hour, day } = TEXTS.units;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} ${second}`;
  if (whole < 3_600) return pair(Math.floor(whole / 60), minute, whole % 60, second);
  const minutes = Math.floor(whole / 60);
  if (whole < 86_400) return pair(Math.floor(minutes / 60), hour, minutes % 60, minute);
  const hours = Math.floor(minutes / 60);
  return pair(Math.floor(hours / 24), day, hours % 24, hour);
}

/**
 * @param {number} big
 * @param {string} bigUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function pair(big, bigUnit, small, smallUnit) {
  return small === 0 ? `${big} ${bigUnit}` : `${big} ${bigUnit} ${small} ${smallUnit}`;
}

/** @param {number} bytes */
export function size(bytes) {
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1_000 && unit < UNITS.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : rate(value)} ${UNITS[unit]}`;
}

/**
 * Formats a duration as `31 ms` or `1.2 s`.
 *
 * @param {number} ms
 */
export function milliseconds(ms) {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${ONE_DIGIT.format(ms / 1_000)} s`;
}

/**
 * Formats a share as `97.5 %`, rounded down.
 *
 * @param {number} share - 0 to 1
 */
export function percent(share) {
  return `${ONE_DIGIT.format(Math.floor(share * 1_000) / 10)} %`;
}

/**
 * Formats the time since a moment with one unit: `just now`, `12 s ago`, `5 min ago`.
 *
 * @param {string} moment - in ISO 8601
 * @param {number} now - epoch ms
 */
export function ago(moment, now) {
  const seconds = (now - Date.parse(moment)) / 1_000;
  if (seconds < 2) return TEXTS.justNow;
  const { second, minute, hour, day } = TEXTS.units;
  if (seconds < 60) return TEXTS.ago(`${Math.floor(seconds)} ${second}`);
  if (seconds < 3_600) return TEXTS.ago(`${Math.floor(seconds / 60)} ${minute}`);
  return seconds < 86_400
    ? TEXTS.ago(`${Math.floor(seconds / 3_600)} ${hour}`)
    : TEXTS.ago(`${Math.floor(seconds / 86_400)} ${day}`);
}

/**
 * Formats a moment as date and time in the browser's time zone.
 *
 * @param {string} moment - in ISO 8601
 */
export function dateAndTime(moment) {
  return MOMENT.format(Date.parse(moment));
}

/** The time of day of a moment. @param {string} moment - in ISO 8601 */
export function clockOf(moment) {
  return CLOCK.format(Date.parse(moment));
}

/**
 * Turns a text into a sentence: adds a capital letter and a full stop if they are missing.
 *
 * @param {string} text
 */
export function sentence(text) {
  const trimmed = text.trim();
  if (trimmed === '') return '';
  const capitalized = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  if (/[.!?。！？]$/.test(capitalized)) return capitalized;
  return `${capitalized}${/\p{Script=Han}$/u.test(capitalized) ? '。' : '.'}`;
}
