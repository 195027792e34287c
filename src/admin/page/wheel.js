// @ts-check
/**
 * The wheel of members. Each member has a slot, drawn as a bucket. Missing members have empty slots. The slots are
 * grouped by source. A member keeps its slot until it leaves the pool. The level of a bucket shows the remaining
 * lifetime of its member. A moving line from the bucket to the hub shows that the member has open tunnels.
 *
 * The Tab key reaches only one bucket. The arrow keys move the focus between buckets.
 */
import { countMembers } from './connect.js';
import { byId, h, setAttribute, setText, svg } from './dom.js';
import { count, counted, duration, rate } from './format.js';
import { TEXTS } from './texts.js';
import {
  AXLE,
  bucketPath,
  flowPath,
  INNER,
  layOutSectors,
  OUTER,
  point,
  sectorNamePath,
  surfacePath,
} from './wheel-geometry.js';
import { WheelSlots } from './wheel-slots.js';

/**
 * @typedef {import('../schemas.ts').MemberJson} Member
 * @typedef {import('../schemas.ts').Status} Status
 * @typedef {import('./wheel-geometry.js').Bucket} Bucket
 * @typedef {{ bucket: Bucket, group: SVGGElement, fill: SVGPathElement, surface: SVGPathElement, flow: SVGPathElement, member: Member | undefined, level: number }} Slot
 */

/** The maximum number of buckets. More buckets would be too small to tell apart. */
export const MAX_MEMBERS = 1_200;
/** The level of a bucket, from 0 to 1, if the remaining lifetime of its member is unknown. */
const UNKNOWN_LEVEL = 0.62;
/** How far the wheel's axle turns for each new tunnel, in rotations. */
const TURNS_PER_TUNNEL = 0.004;
const MAX_TURNS = 0.12;
const PADDLE_COUNT = 28;

const STATES = /** @type {const} */ (['ready', 'quarantined', 'draining', 'joining']);

export class Wheel {
  #onSelect;
  #assignment = new WheelSlots();
  /** @type {Slot[]} */
  #slots = [];
  /** The argument of the last call of `#layOut`, as JSON. `#layOut` draws again only if the argument has changed. */
  #drawnLayout = '';
  #shownAt = 0;
  /** The id of the member whose bucket last had the focus. @type {string | undefined} */
  #focused;

  /**
   * @param {(member: Member | undefined, pinned: boolean) => void} onSelect - called when a person points at a bucket
   *   (`pinned` is false) or selects it (`pinned` is true)
   */
  constructor(onSelect) {
    this.#onSelect = onSelect;
    this.buckets = svg('g', {
      role: 'group',
      'aria-label': TEXTS.wheel.label,
    });
    this.names = svg('g', { class: 'sector-names', 'aria-hidden': 'true' });
    this.axle = svg('g', { class: 'axle', 'aria-hidden': 'true' }, ...paddles());
    this.usable = svg('text', { class: 'hub-usable', y: 6 });
    this.wanted = svg('text', { class: 'hub-wanted', y: 32 });
    this.rate = svg('text', { class: 'hub-rate', y: 58 });
    const drawing = svg(
      'svg',
      { viewBox: '-300 -300 600 600', class: 'wheel-drawing' },
      stripesPattern(),
      svg('circle', { class: 'rim', r: OUTER + 7 }),
      svg('circle', { class: 'rim', r: INNER - 5 }),
      this.names,
      this.axle,
      svg('circle', { class: 'hub', r: AXLE - 14 }),
      svg('g', { class: 'hub-text', 'aria-hidden': 'true' }, this.usable, this.wanted, this.rate),
      this.buckets,
    );
    this.turning = this.axle.animate([{ transform: 'rotate(0)' }, { transform: 'rotate(1turn)' }], {
      duration: 1_000,
      iterations: Number.POSITIVE_INFINITY,
    });
    this.turning.playbackRate = 0;
    drawing.addEventListener('keydown', (event) => this.#onKey(event));
    drawing.addEventListener('pointerleave', () => this.#onSelect(undefined, false));
    byId('wheel').replaceChildren(drawing);
    setText(byId('wheel-marks'), TEXTS.marks);
  }

  /**
   * @param {Status} status
   * @param {readonly Member[]} members - at most MAX_MEMBERS
   * @param {number} now - by performance.now()
   */
  show(status, members, now) {
    const { sources } = status;
    this.#shownAt = now;
    const bySource = Map.groupBy(members, ({ source }) => source);
    const sectors = sources.map(({ name, size }) => {
      const present = bySource.get(name) ?? [];
      return { source: name, ids: this.#assignment.assign(name, Math.min(size, MAX_MEMBERS), present) };
    });
    this.#layOut(sectors.map(({ source, ids }) => ({ source, count: ids.length })));
    const known = new Map(members.map((member) => [member.id, member]));
    const ids = sectors.flatMap((sector) => sector.ids);
    for (const [index, slot] of this.#slots.entries()) this.#setMember(slot, known.get(ids[index] ?? ''));
    this.#updateTabStop();
    this.updateLevels(now);
    this.#showCounts(status, members.length);
  }

  /**
   * Lowers the level of each bucket, because remaining lifetimes have decreased since the last `show`.
   * @param {number} now - by performance.now()
   */
  updateLevels(now) {
    const elapsed = Math.max(0, now - this.#shownAt) / 1_000;
    for (const slot of this.#slots) {
      if (slot.member !== undefined) this.#setLevel(slot, slot.member, elapsed);
    }
  }

  /**
   * Returns how full the member's bucket is, from 0 to 1; undefined if the remaining lifetime is unknown.
   *
   * @param {Member} member
   * @param {number} [elapsed] - seconds since the last `show`
   */
  levelOf({ source, remainingSeconds }, elapsed = 0) {
    return remainingSeconds === null
      ? undefined
      : this.#assignment.levelOf(source, remainingSeconds - elapsed);
  }

  /**
   * Shows the rate of new tunnels, as the speed of the wheel's axle and as a number in the hub.
   *
   * @param {number} tunnelsPerSecond
   */
  showRate(tunnelsPerSecond) {
    const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.turning.updatePlaybackRate(still ? 0 : Math.min(MAX_TURNS, tunnelsPerSecond * TURNS_PER_TUNNEL));
    setText(this.rate, TEXTS.wheel.rate(rate(tunnelsPerSecond)));
  }

  /** Moves the keyboard focus to the bucket that the Tab key reaches. */
  focus() {
    this.#slots.find(({ group }) => group.getAttribute('tabindex') === '0')?.group.focus();
  }

  /** @param {string | undefined} id - the id of the selected member */
  markPinned(id) {
    for (const { group, member } of this.#slots) {
      setAttribute(group, 'aria-pressed', member === undefined ? undefined : String(member.id === id));
    }
  }

  /** @param {readonly { source: string, count: number }[]} sources */
  #layOut(sources) {
    const layout = JSON.stringify(sources);
    if (layout === this.#drawnLayout) return;
    this.#drawnLayout = layout;
    const sectors = layOutSectors(sources);
    this.#slots = sectors.flatMap(({ buckets }) => buckets).map((bucket) => this.#createSlot(bucket));
    this.buckets.replaceChildren(...this.#slots.map(({ group }) => group));
    this.names.replaceChildren(
      ...sectors.flatMap((sector, index) => {
        const room = (sector.to - sector.from) * OUTER;
        if (sectors.length === 1 || room < sector.source.length * 9) return [];
        const id = `sector-${index}`;
        const name = svg('textPath', { href: `#${id}`, startOffset: '50%' }, sector.source);
        return [svg('path', { id, d: sectorNamePath(sector), fill: 'none' }), svg('text', {}, name)];
      }),
    );
  }

  /**
   * @param {Bucket} bucket
   * @returns {Slot}
   */
  #createSlot(bucket) {
    const outline = svg('path', { class: 'bucket-outline', d: bucketPath(bucket, 1) });
    const fill = svg('path', { class: 'bucket-fill' });
    const surface = svg('path', { class: 'bucket-surface' });
    const flow = svg('path', { class: 'flow', d: flowPath(bucket), hidden: true });
    const group = svg('g', { class: 'bucket' }, flow, outline, fill, surface);
    /** @type {Slot} */
    const slot = { bucket, group, fill, surface, flow, member: undefined, level: -1 };
    const select = (/** @type {boolean} */ pinned) => {
      if (slot.member !== undefined) this.#onSelect(slot.member, pinned);
    };
    group.addEventListener('pointerenter', () => select(false));
    group.addEventListener('click', () => select(true));
    group.addEventListener('focus', () => {
      this.#focused = slot.member?.id;
      this.#updateTabStop();
      setLabel(slot);
      select(false);
    });
    return slot;
  }

  /** @param {Slot} slot @param {Member | undefined} member */
  #setMember(slot, member) {
    const { group, flow } = slot;
    const isNew = member !== undefined && slot.member?.id !== member.id;
    slot.member = member;
    setAttribute(group, 'data-state', member?.state ?? 'empty');
    setAttribute(group, 'data-unknown', member?.remainingSeconds === null);
    setAttribute(group, 'role', member === undefined ? undefined : 'button');
    setAttribute(group, 'aria-hidden', member === undefined ? 'true' : undefined);
    if (member === undefined) {
      slot.level = -1;
      for (const path of [slot.fill, slot.surface]) path.removeAttribute('d');
      setAttribute(flow, 'hidden', true);
      for (const name of ['tabindex', 'aria-label', 'aria-pressed']) group.removeAttribute(name);
      return;
    }
    if (isNew) {
      group.classList.remove('new');
      group.getBoundingClientRect(); // forces a reflow, which restarts the animation
      group.classList.add('new');
    }
    setLabel(slot);
    const { openTunnels } = member;
    setAttribute(flow, 'hidden', openTunnels === 0);
    setAttribute(flow, 'stroke-width', openTunnels === 0 ? undefined : 1.2 + Math.log2(1 + openTunnels));
  }

  /** @param {Slot} slot @param {Member} member @param {number} elapsed - seconds since the last `show` */
  #setLevel(slot, member, elapsed) {
    const level = this.levelOf(member, elapsed) ?? UNKNOWN_LEVEL;
    if (Math.abs(level - slot.level) < 0.002) return;
    slot.level = level;
    slot.fill.setAttribute('d', bucketPath(slot.bucket, level));
    slot.surface.setAttribute('d', surfacePath(slot.bucket, level));
  }

  /** Lets the Tab key reach exactly one bucket. */
  #updateTabStop() {
    const occupied = this.#occupied();
    const current = occupied.find(({ member }) => member?.id === this.#focused) ?? occupied[0];
    for (const { group } of occupied) setAttribute(group, 'tabindex', group === current?.group ? 0 : -1);
  }

  #occupied() {
    return this.#slots.filter(({ member }) => member !== undefined);
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const occupied = this.#occupied();
    const index = occupied.findIndex(({ group }) => group === document.activeElement);
    if (index === -1) return;
    const next = indexAfterKey(event.key, index, occupied.length);
    if (next !== undefined) occupied[next]?.group.focus();
    else if (event.key === 'Enter' || event.key === ' ') this.#onSelect(occupied[index]?.member, true);
    else if (event.key === 'Escape') this.#onSelect(undefined, true);
    else return;
    event.preventDefault();
  }

  /**
   * Shows the numbers of members in the hub and in the legend.
   *
   * @param {Status} status
   * @param {number} shownCount - how many members the wheel shows
   */
  #showCounts({ sources, pool }, shownCount) {
    const { ready: usable, wanted, extra } = countMembers(sources);
    setText(this.usable, count(usable));
    setText(this.wanted, TEXTS.wheel.wanted(count(wanted)));
    const item = (/** @type {string} */ label, /** @type {number} */ value, /** @type {string} */ state) =>
      h('div', { 'data-state': state }, h('dt', {}, label), h('dd', {}, count(value)));
    const items = STATES.map((state) => item(TEXTS.memberStates[state], pool[state], state));
    if (extra > 0) items.push(item(TEXTS.wheel.extra, extra, 'extra'));
    items.push(
      item(
        TEXTS.wheel.missing,
        sources.reduce((sum, { ready, size }) => sum + Math.max(0, size - ready), 0),
        'empty',
      ),
    );
    const notShown = STATES.reduce((sum, state) => sum + pool[state], 0) - shownCount;
    if (notShown > 0) items.push(item(TEXTS.wheel.notShown, notShown, 'not-shown'));
    byId('legend').replaceChildren(...items);
  }
}

/** @param {Slot} slot */
function setLabel({ group, member }) {
  if (member === undefined) return;
  const { id, source, state, remainingSeconds, openTunnels } = member;
  const expiry =
    remainingSeconds === null ? TEXTS.wheel.expiryUnknown : TEXTS.wheel.expiresIn(duration(remainingSeconds));
  const load = openTunnels === 0 ? '' : `${TEXTS.comma}${counted(openTunnels, TEXTS.nouns.openTunnel)}`;
  setAttribute(
    group,
    'aria-label',
    `${TEXTS.wheel.bucket(id, source, TEXTS.memberStates[state], expiry)}${load}`,
  );
}

/**
 * Returns the index to which a navigation key moves the focus; undefined for any other key.
 * @param {string} key @param {number} index @param {number} length
 */
function indexAfterKey(key, index, length) {
  if (key === 'Home') return 0;
  if (key === 'End') return length - 1;
  if (key === 'ArrowRight' || key === 'ArrowDown') return (index + 1) % length;
  return key === 'ArrowLeft' || key === 'ArrowUp' ? (index - 1 + length) % length : undefined;
}

function paddles() {
  return Array.from({ length: PADDLE_COUNT }, (_, index) => {
    const angle = (index / PADDLE_COUNT) * 2 * Math.PI;
    return svg('path', { d: `M${point(AXLE - 9, angle)}L${point(AXLE + 2, angle + 0.05)}` });
  });
}

/** Quarantined members have stripes, so that colour is not the only sign of their state. */
function stripesPattern() {
  const stripe = svg('path', { d: 'M0 0V8', class: 'stripe' });
  const attributes = {
    id: 'stripes',
    width: 6,
    height: 8,
    patternUnits: 'userSpaceOnUse',
    patternTransform: 'rotate(38)',
  };
  return svg('defs', {}, svg('pattern', attributes, stripe));
}
