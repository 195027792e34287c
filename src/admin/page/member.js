// @ts-check
/** One member in words, with what can be done to it; and all of them as a table. */
import { byId, h, keyed, setAttribute, setText } from './dom.js';
import { count, counted, duration, milliseconds } from './format.js';

/** @typedef {import('../schemas.ts').MemberJson} Member */

/** More rows than this are not for reading. */
const MOST_ROWS = 500;

/** @param {(member: Member) => void} evict */
export function openMemberCard(evict) {
  const card = byId('member');
  const name = h('h3');
  const state = h('span', { class: 'state' });
  const facts = h('dl', { class: 'figures' });
  /** @type {Member | undefined} */
  let shown;
  const button = h(
    'button',
    { type: 'button', class: 'hurts', click: () => shown !== undefined && evict(shown) },
    'Evict',
  );
  const hint = h(
    'p',
    { class: 'hint' },
    'Point at a bucket to see its member; click, or press Enter, to keep it here.',
  );
  const body = h(
    'div',
    { class: 'member-body' },
    h('div', { class: 'source-head' }, name, state, button),
    facts,
  );
  card.replaceChildren(hint, body);

  return {
    /** @param {Member | undefined} member */
    show(member) {
      shown = member;
      hint.hidden = member !== undefined;
      body.hidden = member === undefined;
      if (member === undefined) return;
      setText(name, member.id);
      setText(state, member.state);
      setAttribute(card, 'data-state', member.state);
      setAttribute(button, 'aria-label', `Evict ${member.id}`);
      button.hidden = member.state === 'draining';
      const rows = Object.entries(factsOf(member)).map(([term, value]) =>
        h('div', {}, h('dt', {}, term), h('dd', {}, value)),
      );
      facts.replaceChildren(...rows);
    },
  };
}

/**
 * @param {Member} member
 * @returns {Record<string, string>}
 */
function factsOf(member) {
  const {
    source,
    protocol,
    host,
    port,
    location,
    exitIp,
    remainingSeconds,
    openTunnels,
    uses,
    faults,
    latencyMs,
  } = member;
  const address = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return {
    source,
    address: `${protocol} ${address}`,
    ...(exitIp === null || exitIp === host ? {} : { 'exit IP': exitIp }),
    ...(location === null ? {} : { location }),
    'life left': remainingSeconds === null ? 'unknown' : duration(remainingSeconds),
    load: `${counted(openTunnels, 'tunnel')} open, ${counted(uses, 'use')}`,
    ...(latencyMs === null ? {} : { latency: milliseconds(latencyMs) }),
    ...(faults === 0 ? {} : { faults: `${count(faults)} in a row` }),
  };
}

/** The table is kept only while it is open: from the start where there is room beside the sources. */
export function openRoster() {
  const details = byId('roster');
  const show = keyed(byId('roster-rows'), (/** @type {Entry} */ { member }) => member.id, rosterRow);
  /** @type {readonly Member[]} */
  let members = [];
  const redraw = () => show(details.hasAttribute('open') ? entriesOf(members) : []);
  details.toggleAttribute('open', matchMedia('(width >= 900px)').matches);
  details.addEventListener('toggle', redraw);
  return {
    /** @param {readonly Member[]} now */
    show(now) {
      members = now;
      redraw();
    },
  };
}

/**
 * Each with its life as a share of the longest in its source.
 *
 * @typedef {{ member: Member, level: number | undefined }} Entry
 * @param {readonly Member[]} members
 * @returns {Entry[]}
 */
function entriesOf(members) {
  /** @type {Map<string, number>} */
  const longest = new Map();
  for (const { source, remainingSeconds } of members) {
    longest.set(source, Math.max(longest.get(source) ?? 1, remainingSeconds ?? 0));
  }
  return members.slice(0, MOST_ROWS).map((member) => {
    const { source, remainingSeconds } = member;
    const full = longest.get(source) ?? 1;
    return { member, level: remainingSeconds === null ? undefined : remainingSeconds / full };
  });
}

/** @returns {import('./dom.js').Row<Entry>} */
function rosterRow() {
  const name = h('th', { scope: 'row' });
  const bar = h('span', { class: 'life' });
  const left = h('span');
  const life = h('td', {}, bar, left);
  const text = () => h('td');
  const number = () => h('td', { class: 'number' });
  const cells = {
    source: text(),
    state: text(),
    open: number(),
    uses: number(),
    faults: number(),
    latency: number(),
    location: text(),
  };
  const { source, state, ...rest } = cells;
  const element = h('tr', {}, name, source, state, life, ...Object.values(rest));
  return {
    element,
    update({ member, level }) {
      const { remainingSeconds, latencyMs } = member;
      setText(name, member.id);
      setAttribute(bar, 'data-state', level === undefined ? 'unknown' : 'known');
      bar.style.backgroundSize = level === undefined ? '' : `${Math.round(level * 100)}% 100%`;
      setText(left, remainingSeconds === null ? 'unknown' : duration(remainingSeconds));
      setText(cells.source, member.source);
      setText(cells.state, member.state);
      setText(cells.open, count(member.openTunnels));
      setText(cells.uses, count(member.uses));
      setText(cells.faults, count(member.faults));
      setText(cells.latency, latencyMs === null ? '' : milliseconds(latencyMs));
      setText(cells.location, member.location ?? '');
    },
  };
}
