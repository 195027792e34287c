// @ts-check
/**
 * Creates and updates elements. All text is inserted as text and never parsed as markup. Characters that change the
 * order or the look of the text around them are escaped.
 */
import { printable } from './format.js';

const SVG_NAMESPACE = 'http://www.w3.org/2000/svg';

/** @typedef {Record<string, string | number | boolean | ((event: any) => void) | undefined>} Props */

/**
 * Creates an HTML element. A function in `props` becomes a listener for the event of that name.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  setProps(element, props);
  element.append(...children.map(printableChild));
  return element;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG_NAMESPACE, tag);
  setProps(element, props);
  element.append(...children.map(printableChild));
  return element;
}

/** @param {Node | string} child */
function printableChild(child) {
  return typeof child === 'string' ? printable(child) : child;
}

/**
 * @param {Element} element
 * @param {Props} props
 */
function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else setAttribute(element, name, value);
  }
}

/**
 * Changes an attribute only if its value differs. `false` and `undefined` remove the attribute; `true` sets it to ''.
 *
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | undefined} value
 */
export function setAttribute(element, name, value) {
  const text = value === true ? '' : printable(String(value));
  if (value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/**
 * Sets the text only if it has changed. Setting the same text again would clear the user's text selection, and a screen
 * reader could repeat the text.
 * @param {Element} element @param {string} text
 */
export function setText(element, text) {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new TypeError(`the page has no #${id}`);
  return element;
}

/**
 * @template Item
 * @typedef {{ readonly element: Element, update(item: Item): void }} Row
 */

/**
 * Returns a function that shows a list of items as rows, in the order of the items. If a key is already shown, its row
 * is updated in place and keeps the keyboard focus.
 * @template Item
 * @param {Element} container
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Row<Item>} createRow
 * @returns {(items: readonly Item[]) => void}
 */
export function keyedList(container, keyOf, createRow) {
  /** @type {Map<string, Row<Item>>} */
  const rows = new Map();
  return (items) => {
    const keys = new Set(items.map(keyOf));
    for (const [key, row] of rows) {
      if (keys.has(key)) continue;
      row.element.remove();
      rows.delete(key);
    }
    /** @type {Element | null} */
    let next = container.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const row = rows.get(key) ?? createRow(item);
      rows.set(key, row);
      row.update(item);
      if (row.element === next) next = next.nextElementSibling;
      else container.insertBefore(row.element, next);
    }
  };
}
