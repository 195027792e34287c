// @ts-check
/** The member card, which shows one member and can evict it, and the table of members. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { count, counted, duration, milliseconds } from './format.js';

/** @typedef {import('../schemas.ts').MemberJson} Member */

const MAX_ROWS = 500;

/** @param {(member: Member) => void} evict */
export function openMemberCard(evict) {
  const card = byId('member-card');
  const name = h('h3');
  const state = h('span', { class: 'state' });
  const facts = h('dl', { class: 'figures' });
  /** @type {Member | undefined} */
  let shown;
  const button = h(
    'button',
    { type: 'button', class: 'danger', click: () => shown !== undefined && evict(shown) },
    'Evict',
  );
  const hint = h(
    'p',
    { class: 'hint' },
    'Point at a bucket of the wheel to see its member. Click it or press Enter to keep it selected.',
  );
  const body = h('div', {}, h('div', { class: 'source-head' }, name, state, button), facts);
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
  const { source, protocol, host, port, location, exitIp, openTunnels, uses, faults, latencyMs } = member;
  const address = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return {
    source,
    address: `${protocol} ${address}`,
    ...(exitIp === null || exitIp === host ? {} : { 'exit IP': exitIp }),
    ...(location === null ? {} : { location }),
    'expires in': expiresIn(member),
    load: `${counted(openTunnels, 'open tunnel')}, ${counted(uses, 'use')}`,
    ...(latencyMs === null ? {} : { latency: milliseconds(latencyMs) }),
    ...(faults === 0 ? {} : { faults: `${count(faults)} in a row` }),
  };
}

/** @param {Member} member */
function expiresIn({ remainingSeconds }) {
  return remainingSeconds === null ? 'unknown' : duration(remainingSeconds);
}

/** Rows exist only while the table is open. It is open from the start on wide screens. */
export function openMemberTable() {
  const details = byId('member-table');
  const showRows = keyedList(byId('member-rows'), (/** @type {Entry} */ { member }) => member.id, memberRow);
  /** @type {readonly Member[]} */
  let members = [];
  const redraw = () => showRows(details.hasAttribute('open') ? entriesOf(members) : []);
  details.toggleAttribute('open', matchMedia('(width >= 900px)').matches);
  details.addEventListener('toggle', redraw);
  return {
    /** @param {readonly Member[]} current */
    show(current) {
      members = current;
      redraw();
    },
  };
}

/**
 * A member and its remaining lifetime as a share of the longest one in its source; undefined when it is unknown.
 *
 * @typedef {{ member: Member, share: number | undefined }} Entry
 * @param {readonly Member[]} members
 * @returns {Entry[]}
 */
function entriesOf(members) {
  /** @type {Map<string, number>} */
  const longest = new Map();
  for (const { source, remainingSeconds } of members) {
    longest.set(source, Math.max(longest.get(source) ?? 1, remainingSeconds ?? 0));
  }
  return members.slice(0, MAX_ROWS).map((member) => {
    const { source, remainingSeconds } = member;
    const full = longest.get(source) ?? 1;
    return { member, share: remainingSeconds === null ? undefined : remainingSeconds / full };
  });
}

/** @returns {import('./dom.js').Row<Entry>} */
function memberRow() {
  const name = h('th', { scope: 'row' });
  const bar = h('span', { class: 'lifetime-bar' });
  const lifetime = h('span');
  const text = () => h('td');
  const number = () => h('td', { class: 'number' });
  const [source, state, location] = [text(), text(), text()];
  const [tunnels, uses, faults, latency] = [number(), number(), number(), number()];
  const element = h(
    'tr',
    {},
    name,
    source,
    state,
    h('td', {}, bar, lifetime),
    tunnels,
    uses,
    faults,
    latency,
    location,
  );
  return {
    element,
    update({ member, share }) {
      setText(name, member.id);
      setText(source, member.source);
      setText(state, member.state);
      setAttribute(bar, 'data-state', share === undefined ? 'unknown' : 'known');
      bar.style.backgroundSize = share === undefined ? '' : `${Math.round(share * 100)}% 100%`;
      setText(lifetime, expiresIn(member));
      setText(tunnels, count(member.openTunnels));
      setText(uses, count(member.uses));
      setText(faults, count(member.faults));
      setText(latency, member.latencyMs === null ? '' : milliseconds(member.latencyMs));
      setText(location, member.location ?? '');
    },
  };
}
