// @ts-check
/**
 * The wheel: a bucket for each member that is wanted, its water the life that is left, what pours from it the tunnels it
 * carries. A member keeps its bucket for life; a bucket without one stands empty.
 *
 * One bucket is in the tab order at a time; the arrow keys go round.
 */
import { byId, h, s, setAttribute, setText } from './dom.js';
import { count, counted, duration, rate } from './format.js';
import { AXLE, INNER, layOut, nameLine, OUTER, outline, point, spout, surface } from './wheel-geometry.js';
import { Seating } from './wheel-slots.js';

/**
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').SourceJson} Source
 * @typedef {import('./wheel-geometry.js').Bucket} Bucket
 * @typedef {{ bucket: Bucket, group: SVGGElement, trough: SVGPathElement, water: SVGPathElement, shine: SVGPathElement, spout: SVGPathElement, member: Member | undefined, level: number }} Place
 */

/** More are not drawn: nobody could tell them apart. */
export const MOST_DRAWN = 1_200;
/** What a life of unknown length looks like. */
const UNKNOWN_LEVEL = 0.62;
/** Turns a second of the axle for each tunnel a second, and at most. */
const TURNS_PER_TUNNEL = 0.004;
const MAX_TURNS = 0.12;
const PADDLES = 28;

const STATES = /** @type {const} */ (['ready', 'quarantined', 'draining', 'joining']);
export class Wheel {
  #onSelect;
  #seating = new Seating();
  /** @type {Place[]} */
  #places = [];
  #layout = '';
  #seenAt = 0;
  /** @type {string | undefined} */
  #focused;

  /** @param {(member: Member | undefined, pinned: boolean) => void} onSelect - a person looks at a member, or has chosen it */
  constructor(onSelect) {
    this.#onSelect = onSelect;
    this.troughs = s('g', {
      class: 'buckets',
      role: 'group',
      'aria-label': 'Members; the arrow keys go round',
    });
    this.names = s('g', { class: 'sector-names', 'aria-hidden': 'true' });
    this.axle = s('g', { class: 'axle', 'aria-hidden': 'true' }, ...paddles());
    this.total = s('text', { class: 'hub-total', y: 6 });
    this.wanted = s('text', { class: 'hub-wanted', y: 32 });
    this.flow = s('text', { class: 'hub-flow', y: 58 });
    const drawing = s(
      'svg',
      { viewBox: '-300 -300 600 600', class: 'wheel-drawing' },
      hatching(),
      s('circle', { class: 'rim', r: OUTER + 7 }),
      s('circle', { class: 'rim', r: INNER - 5 }),
      this.names,
      this.axle,
      s('circle', { class: 'hub', r: AXLE - 14 }),
      s('g', { class: 'hub-text', 'aria-hidden': 'true' }, this.total, this.wanted, this.flow),
      this.troughs,
    );
    this.turning = this.axle.animate([{ transform: 'rotate(0)' }, { transform: 'rotate(1turn)' }], {
      duration: 1_000,
      iterations: Number.POSITIVE_INFINITY,
    });
    this.turning.playbackRate = 0;
    drawing.addEventListener('keydown', (event) => this.#onKey(event));
    drawing.addEventListener('pointerleave', () => this.#onSelect(undefined, false));
    byId('wheel').replaceChildren(drawing);
  }

  /**
   * Shows what noria says now.
   *
   * @param {readonly Source[]} sources
   * @param {readonly Member[]} members
   * @param {number} at - when it was said, by performance.now()
   */
  show(sources, members, at) {
    this.#seenAt = at;
    const drawn = members.slice(0, MOST_DRAWN);
    const bySource = Map.groupBy(drawn, ({ source }) => source);
    const sectors = sources.map(({ name, size }) => {
      const present = bySource.get(name) ?? [];
      return { source: name, seats: this.#seating.seat(name, Math.min(size, MOST_DRAWN), present) };
    });
    this.#build(sectors.map(({ source, seats }) => ({ source, count: seats.length })));
    const known = new Map(drawn.map((member) => [member.id, member]));
    const seats = sectors.flatMap((sector) => sector.seats);
    for (const [at, place] of this.#places.entries()) this.#fill(place, known.get(seats[at] ?? ''));
    this.#keepFocusable();
    this.drain(at);
    this.#label(sources, members.length - drawn.length, members);
  }

  /**
   * Lets the water sink: what was said `now - at` ago is that much less by now.
   *
   * @param {number} now - by performance.now()
   */
  drain(now) {
    const passed = Math.max(0, now - this.#seenAt) / 1_000;
    for (const place of this.#places) {
      if (place.member !== undefined) this.#pour(place, place.member, passed);
    }
  }

  /** @param {number} perSecond */
  turn(perSecond) {
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.turning.updatePlaybackRate(still ? 0 : Math.min(MAX_TURNS, perSecond * TURNS_PER_TUNNEL));
    setText(this.flow, `${rate(perSecond)} tunnels/s`);
  }

  /** Moves the focus to the bucket that Tab would reach. */
  focus() {
    this.#places.find(({ group }) => group.getAttribute('tabindex') === '0')?.group.focus();
  }

  /** @param {string | undefined} id - of the member that was chosen */
  mark(id) {
    for (const { group, member } of this.#places) {
      setAttribute(group, 'aria-pressed', member === undefined ? undefined : String(member.id === id));
    }
  }

  /** @param {readonly { source: string, count: number }[]} sources */
  #build(sources) {
    const layout = JSON.stringify(sources);
    if (layout === this.#layout) return;
    this.#layout = layout;
    const sectors = layOut(sources);
    this.#places = sectors.flatMap(({ buckets }) => buckets).map((bucket) => this.#makePlace(bucket));
    this.troughs.replaceChildren(...this.#places.map(({ group }) => group));
    this.names.replaceChildren(
      ...sectors.flatMap((sector, at) => {
        const id = `sector-${at}`;
        const name = s('textPath', { href: `#${id}`, startOffset: '50%' }, sector.source);
        const room = (sector.to - sector.from) * OUTER;
        if (sectors.length === 1 || room < sector.source.length * 9) return [];
        return [s('path', { id, d: nameLine(sector), fill: 'none' }), s('text', {}, name)];
      }),
    );
  }

  /**
   * @param {Bucket} bucket
   * @returns {Place}
   */
  #makePlace(bucket) {
    const trough = s('path', { class: 'trough', d: outline(bucket, 1) });
    const water = s('path', { class: 'water' });
    const shine = s('path', { class: 'shine' });
    const pours = s('path', { class: 'spout', d: spout(bucket), hidden: true });
    const group = s('g', { class: 'bucket' }, pours, trough, water, shine);
    /** @type {Place} */
    const place = { bucket, group, trough, water, shine, spout: pours, member: undefined, level: -1 };
    const look = (/** @type {boolean} */ pinned) => {
      if (place.member !== undefined) this.#onSelect(place.member, pinned);
    };
    group.addEventListener('pointerenter', () => look(false));
    group.addEventListener('click', () => look(true));
    group.addEventListener('focus', () => {
      this.#focused = place.member?.id;
      this.#keepFocusable();
      this.#name(place);
      look(false);
    });
    return place;
  }

  /** @param {Place} place @param {Member | undefined} member */
  #fill(place, member) {
    const { group } = place;
    const came = member !== undefined && place.member?.id !== member.id;
    place.member = member;
    setAttribute(group, 'data-state', member?.state ?? 'empty');
    setAttribute(group, 'data-unknown', member?.remainingSeconds === null);
    setAttribute(group, 'role', member === undefined ? undefined : 'button');
    setAttribute(group, 'aria-hidden', member === undefined ? 'true' : undefined);
    if (member === undefined) {
      place.level = -1;
      for (const path of [place.water, place.shine]) path.removeAttribute('d');
      setAttribute(place.spout, 'hidden', true);
      for (const name of ['tabindex', 'aria-label', 'aria-pressed']) group.removeAttribute(name);
      return;
    }
    if (came) {
      group.classList.remove('came');
      group.getBoundingClientRect(); // so that the animation begins anew
      group.classList.add('came');
    }
    this.#name(place);
    const { openTunnels } = member;
    setAttribute(place.spout, 'hidden', openTunnels === 0);
    setAttribute(
      place.spout,
      'stroke-width',
      openTunnels === 0 ? undefined : 1.2 + Math.log2(1 + openTunnels),
    );
  }

  /** @param {Place} place @param {Member} member @param {number} passed */
  #pour(place, member, passed) {
    const left = member.remainingSeconds === null ? undefined : Math.max(0, member.remainingSeconds - passed);
    const level = left === undefined ? UNKNOWN_LEVEL : this.#seating.levelOf(member.source, left);
    if (Math.abs(level - place.level) < 0.002) return;
    place.level = level;
    place.water.setAttribute('d', outline(place.bucket, level));
    place.shine.setAttribute('d', surface(place.bucket, level));
  }

  /** @param {Place} place */
  #name({ group, member }) {
    if (member === undefined) return;
    const { id, source, state, remainingSeconds, openTunnels } = member;
    const life = remainingSeconds === null ? 'life unknown' : `${duration(remainingSeconds)} left`;
    const load = openTunnels === 0 ? '' : `, ${counted(openTunnels, 'open tunnel')}`;
    setAttribute(group, 'aria-label', `${id} of ${source}, ${state}, ${life}${load}`);
  }

  /** Exactly one bucket can be reached by Tab. */
  #keepFocusable() {
    const occupied = this.#occupied();
    const current = occupied.find(({ member }) => member?.id === this.#focused) ?? occupied[0];
    for (const { group } of occupied) setAttribute(group, 'tabindex', group === current?.group ? 0 : -1);
  }

  #occupied() {
    return this.#places.filter(({ member }) => member !== undefined);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const occupied = this.#occupied();
    const at = occupied.findIndex(({ group }) => group === document.activeElement);
    if (at === -1) return;
    const to = keyTarget(event.key, at, occupied.length);
    if (to !== undefined) occupied[to]?.group.focus();
    else if (event.key === 'Enter' || event.key === ' ') this.#onSelect(occupied[at]?.member, true);
    else if (event.key === 'Escape') this.#onSelect(undefined, true);
    else return;
    event.preventDefault();
  }

  /**
   * @param {readonly Source[]} sources
   * @param {number} undrawn
   * @param {readonly Member[]} members
   */
  #label(sources, undrawn, members) {
    const usable = sources.reduce((sum, { ready }) => sum + ready, 0);
    const wanted = sources.reduce((sum, { size }) => sum + size, 0);
    setText(this.total, count(usable));
    setText(this.wanted, `of ${count(wanted)} usable`);
    const rows = STATES.map(
      (state) => /** @type {const} */ ([state, members.filter((member) => member.state === state).length]),
    );
    const empty = this.#places.length - this.#occupied().length;
    const items = [...rows, /** @type {const} */ (['empty', empty])].map(([state, number]) =>
      h('div', { 'data-state': state }, h('dt', {}, state), h('dd', {}, count(number))),
    );
    if (undrawn > 0) items.push(h('div', {}, h('dt', {}, 'not drawn'), h('dd', {}, count(undrawn))));
    byId('legend').replaceChildren(...items);
  }
}

/**
 * Where a key leads from one of `count` buckets; undefined where it leads nowhere.
 *
 * @param {string} key
 * @param {number} at
 * @param {number} count
 */
function keyTarget(key, at, count) {
  if (key === 'Home') return 0;
  if (key === 'End') return count - 1;
  if (key === 'ArrowRight' || key === 'ArrowDown') return (at + 1) % count;
  return key === 'ArrowLeft' || key === 'ArrowUp' ? (at - 1 + count) % count : undefined;
}

function paddles() {
  return Array.from({ length: PADDLES }, (_, at) => {
    const angle = (at / PADDLES) * 2 * Math.PI;
    return s('path', { d: `M${point(AXLE - 9, angle)}L${point(AXLE + 2, angle + 0.05)}` });
  });
}

/** Stripes for the quarantined, so that the state does not hang on a colour. */
function hatching() {
  const stripe = s('path', { d: 'M0 0V8', class: 'stripe' });
  const attributes = {
    id: 'stripes',
    width: 6,
    height: 8,
    patternUnits: 'userSpaceOnUse',
    patternTransform: 'rotate(38)',
  };
  return s('defs', {}, s('pattern', attributes, stripe));
}
