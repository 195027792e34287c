// @ts-check
/** Building and keeping elements. Text always goes in as text: nothing that noria tells is ever read as markup. */

const SVG = 'http://www.w3.org/2000/svg';

/** @typedef {Record<string, string | number | boolean | ((event: any) => void) | undefined>} Props */

/**
 * An HTML element. Functions among the props are listeners, by the event's name.
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
  element.append(...children);
  return element;
}

/**
 * An SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Props} [props]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function s(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setProps(element, props);
  element.append(...children);
  return element;
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
 * Sets an attribute where it differs; false and undefined take it away, true leaves it empty.
 *
 * @param {Element} element
 * @param {string} name
 * @param {string | number | boolean | undefined} value
 */
export function setAttribute(element, name, value) {
  if (value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value === true ? '' : value)) {
    element.setAttribute(name, String(value === true ? '' : value));
  }
}

/**
 * Sets the text where it differs, so that a screen reader and a selection are not disturbed for nothing.
 *
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * The element of the page with this id.
 *
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
 * Keeps one element for each item, by key, in the items' order: what stays is updated in place and keeps its focus.
 *
 * @template Item
 * @param {Element} container
 * @param {(item: Item) => string} keyOf
 * @param {(item: Item) => Row<Item>} make
 * @returns {(items: readonly Item[]) => void}
 */
export function keyed(container, keyOf, make) {
  /** @type {Map<string, Row<Item>>} */
  const rows = new Map();
  return (items) => {
    const wanted = new Set(items.map(keyOf));
    for (const [key, row] of rows) {
      if (wanted.has(key)) continue;
      row.element.remove();
      rows.delete(key);
    }
    /** @type {Element | null} */
    let next = container.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const row = rows.get(key) ?? make(item);
      rows.set(key, row);
      row.update(item);
      if (row.element === next) next = next.nextElementSibling;
      else container.insertBefore(row.element, next);
    }
  };
}
