// @ts-check
/** The card of sites: which exits the busiest sites have banned, and how noria spaces their uses. Hidden without sites. */
import { byId, h, keyedList, setText } from './dom.js';
import { clockOf, count, duration } from './format.js';
import { TEXTS } from './texts.js';

/** @typedef {import('../schemas.ts').SiteJson} Site */

export const MAX_SITES = 10;

export function openSites() {
  const showRows = keyedList(byId('sites'), (/** @type {Site} */ { name }) => name, siteRow);
  return {
    /** @param {readonly Site[]} sites */
    show(sites) {
      showRows(sites);
      byId('sites-panel').hidden = sites.length === 0;
    },
  };
}

/**
 * @param {Site} first
 * @returns {import('./dom.js').Row<Site>}
 */
function siteRow(first) {
  const cells = Array.from({ length: 6 }, () => h('td', { class: 'number' }));
  const element = h('tr', {}, h('th', { scope: 'row' }, first.name), ...cells);
  return {
    element,
    update({ uses, usableExits, bannedExits, spacingMs, nextSlotAt, draws }) {
      element.classList.toggle('warned', usableExits === 0 && bannedExits > 0);
      const texts = [
        count(uses),
        count(usableExits),
        count(bannedExits),
        spacingMs === 0 ? '–' : duration(spacingMs / 1000),
        nextSlotText(nextSlotAt),
        count(draws),
      ];
      texts.forEach((text, index) => {
        const cell = cells[index];
        if (cell !== undefined) setText(cell, text);
      });
    },
  };
}

/** @param {string | null} at */
function nextSlotText(at) {
  if (at === null) return TEXTS.noMember;
  return Date.parse(at) <= Date.now() ? TEXTS.slotNow : clockOf(at);
}
