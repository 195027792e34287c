// @ts-check
/** The member card, which shows one member and can evict it, and the table of all members. */
import { byId, h, keyedList, setAttribute, setText } from './dom.js';
import { count, counted, duration, milliseconds } from './format.js';
import { TEXTS } from './texts.js';

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
    TEXTS.actions.evict.action,
  );
  const hint = h(
    'p',
    { class: 'hint' },
    matchMedia('(hover: none)').matches ? TEXTS.cardHint.touch : TEXTS.cardHint.mouse,
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
      setText(state, TEXTS.memberStates[member.state]);
      setAttribute(card, 'data-state', member.state);
      setAttribute(button, 'aria-label', `${TEXTS.actions.evict.action} ${member.id}`);
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
    location,
    exitIp,
    openTunnels,
    uses,
    faults,
    latencyMs,
    drawnBy = null,
  } = member;
  const { card } = TEXTS;
  return {
    [card.source]: source,
    [card.address]: `${protocol} ${addressOf(member)}`,
    ...(exitIp === null || exitIp === host ? {} : { [card.exitIp]: exitIp }),
    ...(location === null ? {} : { [card.location]: location }),
    [card.expiresIn]: expiresIn(member),
    [card.load]: `${counted(openTunnels, TEXTS.nouns.openTunnel)}${TEXTS.comma}${counted(uses, TEXTS.nouns.use)}`,
    ...(latencyMs === null ? {} : { [card.latency]: milliseconds(latencyMs) }),
    ...(faults === 0 ? {} : { [card.faults]: card.inARow(count(faults)) }),
    ...(drawnBy === null ? {} : { [card.drawnBy]: drawnBy }),
  };
}

/** @param {Member} member */
function addressOf({ host, port }) {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** @type {Record<Member['state'], number>} */
const STATE_ORDER = { quarantined: 0, ready: 1, joining: 1, draining: 2 };

/**
 * Sorts the members that need attention to the top: first quarantined members, then those with more faults, then those
 * that expire sooner.
 * @param {readonly Member[]} members
 */
export function membersByTrouble(members) {
  const lifetime = (/** @type {Member} */ { remainingSeconds }) => remainingSeconds ?? Number.MAX_VALUE;
  return members.toSorted(
    (one, other) =>
      STATE_ORDER[one.state] - STATE_ORDER[other.state] ||
      other.faults - one.faults ||
      lifetime(one) - lifetime(other),
  );
}

/** @param {Member} member */
function expiresIn({ remainingSeconds }) {
  return remainingSeconds === null ? TEXTS.card.unknown : duration(remainingSeconds);
}

/** @type {Record<string, (member: Member) => string | number>} */
const SORT_VALUES = {
  member: ({ id }) => id,
  source: ({ source }) => source,
  address: addressOf,
  state: ({ state }) => STATE_ORDER[state],
  expiresIn: ({ remainingSeconds }) => remainingSeconds ?? Number.MAX_VALUE,
  tunnels: ({ openTunnels }) => openTunnels,
  uses: ({ uses }) => uses,
  faults: ({ faults }) => faults,
  latency: ({ latencyMs }) => latencyMs ?? Number.MAX_VALUE,
  location: ({ location }) => location ?? '',
};

/**
 * Returns the members that contain every word of the filter, in the order of a column. Without a column, those with
 * trouble come first.
 * @param {readonly Member[]} members
 * @param {{ filter: string, column?: string | undefined, descending?: boolean }} view
 */
export function membersInView(members, { filter, column, descending = false }) {
  const words = filter.toLowerCase().split(/\s+/);
  const found = members.filter((member) => {
    const { id, source, state, location, exitIp } = member;
    const facts = [id, source, addressOf(member), state, TEXTS.memberStates[state], location, exitIp];
    const text = facts.join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sortValue = SORT_VALUES[column ?? ''];
  if (sortValue === undefined) return membersByTrouble(found);
  const sign = descending ? -1 : 1;
  return found.sort((one, other) => {
    const [a, b] = [sortValue(one), sortValue(other)];
    return sign * (typeof a === 'string' ? a.localeCompare(String(b)) : a - Number(b));
  });
}

/**
 * Creates the rows only while the table is open. On wide screens, it is open from the start.
 * @param {(member: Member) => number | undefined} levelOf - returns the level of the member's bucket, 0 to 1; undefined
 * if the remaining lifetime is unknown
 */
export function openMemberTable(levelOf) {
  const details = byId('member-table');
  const showRows = keyedList(
    byId('member-rows'),
    (/** @type {Member} */ { id }) => id,
    () => memberRow(levelOf),
  );
  const filter = /** @type {HTMLInputElement} */ (byId('member-filter'));
  /** @type {readonly Member[]} */
  let members = [];
  /** @type {{ column?: string | undefined, descending: boolean }} */
  const order = { descending: false };
  const redraw = () => {
    const found = membersInView(members, { filter: filter.value, ...order });
    setText(byId('member-count'), TEXTS.memberCount(count(found.length), count(members.length)));
    showRows(details.hasAttribute('open') ? found.slice(0, MAX_ROWS) : []);
  };
  filter.addEventListener('input', redraw);
  for (const header of details.querySelectorAll('th[data-sort]')) {
    header.addEventListener('click', () => {
      const column = header.getAttribute('data-sort') ?? undefined;
      order.descending = order.column === column && !order.descending;
      order.column = column;
      for (const one of details.querySelectorAll('th[data-sort]')) {
        const sorted = order.descending ? 'descending' : 'ascending';
        setAttribute(one, 'aria-sort', one === header && sorted);
      }
      redraw();
    });
  }
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
 * @param {(member: Member) => number | undefined} levelOf
 * @returns {import('./dom.js').Row<Member>}
 */
function memberRow(levelOf) {
  const name = h('th', { scope: 'row' });
  const bar = h('span', { class: 'lifetime-bar' });
  const lifetime = h('span');
  const text = () => h('td');
  const number = () => h('td', { class: 'number' });
  const [source, address, state, location] = [text(), text(), text(), text()];
  const [tunnels, uses, faults, latency] = [number(), number(), number(), number()];
  const element = h(
    'tr',
    {},
    name,
    source,
    address,
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
    update(member) {
      const level = levelOf(member);
      setText(name, member.id);
      setText(source, member.source);
      setText(address, addressOf(member));
      setAttribute(element, 'data-state', member.faults > 0 ? 'faulty' : member.state);
      setText(state, TEXTS.memberStates[member.state]);
      setAttribute(bar, 'data-state', level === undefined ? 'unknown' : 'known');
      bar.style.backgroundSize = level === undefined ? '' : `${Math.round(level * 100)}% 100%`;
      setText(lifetime, expiresIn(member));
      setText(tunnels, count(member.openTunnels));
      setText(uses, count(member.uses));
      setText(faults, count(member.faults));
      setText(latency, member.latencyMs === null ? '' : milliseconds(member.latencyMs));
      setText(location, member.location ?? '');
    },
  };
}
