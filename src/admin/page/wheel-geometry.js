// @ts-check
/**
 * The geometry of the wheel, as pure functions: where each bucket is, and the SVG paths of its parts.
 *
 * Angles are in radians, clockwise from the top. Radii are in units of the drawing, whose centre is 0, 0.
 */

export const OUTER = 262;
export const INNER = 172;
export const AXLE = 106;
/** The angle between the sectors of two sources. */
const SECTOR_GAP = 0.05;
/** The maximum number of buckets in one row. Narrower buckets would be hard to touch with a finger. */
const MAX_PER_ROW = 96;
const MAX_ROWS = 6;
const ROW_GAP = 4;
/** The outer edge of a full bucket is shifted clockwise by this share of the bucket's width. */
const LEAN = 0.34;
const MAX_LEAN = 0.11;
/** The share of the space for one bucket that stays empty, as a gap between two buckets. */
const BUCKET_GAP = 0.2;
const MAX_BUCKET_GAP = 0.028;

/**
 * @typedef {{ from: number, to: number, inner: number, outer: number, lean: number }} Bucket
 * @typedef {{ source: string, from: number, to: number, buckets: Bucket[] }} Sector
 */

/**
 * Divides the circle into sectors, one for each source. The angle of a sector is proportional to the number of its
 * buckets. If one row cannot hold all buckets, each sector has several rows.
 * @param {readonly { source: string, count: number }[]} sources
 * @returns {Sector[]}
 */
export function layOutSectors(sources) {
  const total = sources.reduce((sum, { count }) => sum + count, 0);
  if (total === 0) return [];
  const gap = sources.length > 1 ? SECTOR_GAP : 0;
  const free = 2 * Math.PI - gap * sources.length;
  const rows = Math.min(MAX_ROWS, Math.ceil(total / MAX_PER_ROW));
  let from = gap / 2;
  return sources.map(({ source, count }) => {
    const to = from + (free * count) / total;
    const sector = { source, from, to, buckets: bucketsOf(from, to, count, rows) };
    from = to + gap;
    return sector;
  });
}

/**
 * @param {number} from
 * @param {number} to
 * @param {number} count
 * @param {number} rows
 * @returns {Bucket[]}
 */
function bucketsOf(from, to, count, rows) {
  const depth = (OUTER - INNER - ROW_GAP * (rows - 1)) / rows;
  const perRow = Math.ceil(count / rows);
  const pitch = (to - from) / perRow;
  const gap = Math.min(pitch * BUCKET_GAP, MAX_BUCKET_GAP);
  // Fill column after column, so that most buckets stay near their position when the number of rows changes.
  return Array.from({ length: count }, (_, at) => {
    const column = Math.floor(at / rows);
    const inner = INNER + (at % rows) * (depth + ROW_GAP);
    return {
      from: from + column * pitch + gap / 2,
      to: from + (column + 1) * pitch - gap / 2,
      inner,
      outer: inner + depth,
      lean: Math.min(pitch * LEAN, MAX_LEAN) / rows,
    };
  });
}

/**
 * The outline of a bucket's filled part.
 *
 * @param {Bucket} bucket
 * @param {number} level - 0 for an empty bucket, 1 for a full one
 */
export function bucketPath(bucket, level) {
  const { from, to, inner, outer, lean } = bucket;
  const top = inner + (outer - inner) * level;
  const turn = lean * level;
  return [
    `M${point(inner, from)}`,
    `L${point(top, from + turn)}`,
    `A${round(top)} ${round(top)} 0 0 1 ${point(top, to + turn)}`,
    `L${point(inner, to)}`,
    `A${round(inner)} ${round(inner)} 0 0 0 ${point(inner, from)}Z`,
  ].join('');
}

/**
 * The upper edge of a bucket's filled part.
 *
 * @param {Bucket} bucket
 * @param {number} level
 */
export function surfacePath({ from, to, inner, outer, lean }, level) {
  const top = inner + (outer - inner) * level;
  const turn = lean * level;
  return `M${point(top, from + turn)}A${round(top)} ${round(top)} 0 0 1 ${point(top, to + turn)}`;
}

/**
 * The line from a bucket to the axle of the wheel. It shows that the member has open tunnels.
 * @param {Bucket} bucket
 */
export function flowPath({ from, to }) {
  const middle = (from + to) / 2;
  return `M${point(INNER - 7, middle)}L${point(AXLE + 10, middle - 0.05)}`;
}

/**
 * The line along which the name of a sector is written. In the lower half of the wheel, it runs counterclockwise, so
 * that the name is not upside down.
 * @param {Sector} sector
 */
export function sectorNamePath({ from, to }) {
  const middle = (from + to) / 2;
  const below = middle > Math.PI / 2 && middle < (3 * Math.PI) / 2;
  const radius = below ? OUTER + 27 : OUTER + 17;
  const [start, end, sweep] = below ? [to, from, 0] : [from, to, 1];
  const large = to - from > Math.PI ? 1 : 0;
  return `M${point(radius, start)}A${radius} ${radius} 0 ${large} ${sweep} ${point(radius, end)}`;
}

/**
 * @param {number} radius
 * @param {number} angle
 */
export function point(radius, angle) {
  return `${round(radius * Math.sin(angle))} ${round(-radius * Math.cos(angle))}`;
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 100) / 100;
}
