// @ts-check
/** The traffic charts: tunnels, bytes, connect time, served requests, members that left the pool, failures. */
import { byId, h, setText } from './dom.js';
import { count, milliseconds, percent, rate, size } from './format.js';
import { LOCALE } from './language.js';
import { TEXTS } from './texts.js';
import uPlot from './uplot.js';

/**
 * Types of the charts. The value axis of a chart ends 10 % above the highest value, but not below `minTop` and not
 * above `top`.
 *
 * @typedef {import('../schemas.ts').HistoryView} History
 * @typedef {(number | null)[]} Column
 * @typedef {{ label: string, colour: string, of: (history: History) => Column }} Line
 * @typedef {{ title: string, format: (value: number) => string, steps?: number[], stacked?: boolean, minTop: number, top?:
 * number, lines: Line[] }} Chart
 */

const AXIS_WIDTH = 52;

/** Possible distances between the ticks of an axis, in bytes. */
const BINARY_STEPS = Array.from({ length: 40 }, (_, power) => 2 ** power);

/** Possible distances between the ticks of an axis with whole numbers. */
const WHOLE_STEPS = Array.from({ length: 8 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

/** @type {Chart[]} */
const CHARTS = [
  {
    title: TEXTS.charts.tunnels,
    format: rate,
    minTop: 1,
    lines: [
      { label: TEXTS.lines.tunnels, colour: '--accent', of: ({ tunnelsPerSecond }) => tunnelsPerSecond },
    ],
  },
  {
    title: TEXTS.charts.bytes,
    format: size,
    steps: BINARY_STEPS,
    minTop: 1_024,
    lines: [
      { label: TEXTS.lines.down, colour: '--accent', of: ({ bytesDownPerSecond }) => bytesDownPerSecond },
      { label: TEXTS.lines.up, colour: '--accent-2', of: ({ bytesUpPerSecond }) => bytesUpPerSecond },
    ],
  },
  {
    title: TEXTS.charts.connectTime,
    format: milliseconds,
    minTop: 20,
    lines: [
      { label: 'p50', colour: '--accent', of: ({ dialP50Ms }) => dialP50Ms },
      { label: 'p95', colour: '--accent-2', of: ({ dialP95Ms }) => dialP95Ms },
    ],
  },
  {
    title: TEXTS.charts.served,
    format: percent,
    minTop: 1,
    top: 1,
    lines: [{ label: TEXTS.lines.served, colour: '--accent', of: ({ successRate }) => successRate }],
  },
  {
    title: TEXTS.charts.left,
    format: count,
    steps: WHOLE_STEPS,
    stacked: true,
    minTop: 4,
    lines: [
      { label: TEXTS.lines.used, colour: '--accent', of: ({ membersLeft }) => membersLeft.used },
      { label: TEXTS.lines.neverUsed, colour: '--side-target', of: ({ membersLeft }) => membersLeft.unused },
    ],
  },
  {
    title: TEXTS.charts.failures,
    format: count,
    steps: WHOLE_STEPS,
    stacked: true,
    minTop: 4,
    lines: [
      { label: TEXTS.sides.member, colour: '--side-member', of: ({ failures }) => failures.member },
      { label: TEXTS.sides.target, colour: '--side-target', of: ({ failures }) => failures.target },
      { label: TEXTS.sides.client, colour: '--side-client', of: ({ failures }) => failures.client },
      { label: TEXTS.sides.source, colour: '--side-source', of: ({ failures }) => failures.source },
      { label: TEXTS.sides.network, colour: '--side-network', of: ({ failures }) => failures.network },
      { label: TEXTS.sides.noria, colour: '--side-noria', of: ({ failures }) => failures.noria },
    ],
  },
];

export function openTraffic() {
  const charts = CHARTS.map((chart) => new ChartView(chart));
  byId('charts').replaceChildren(...charts.map(({ element }) => element));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    for (const chart of charts) chart.redraw();
  });
  return {
    /** @param {History} history */
    show(history) {
      for (const chart of charts) chart.show(history);
    },
  };
}

class ChartView {
  #chart;
  #plotArea;
  #values;
  #note;
  /** @type {History | undefined} */
  #history;
  /** @type {uPlot | undefined} */
  #plot;

  /** @param {Chart} chart */
  constructor(chart) {
    this.#chart = chart;
    this.#plotArea = h('div', { class: 'chart-plot', 'aria-hidden': 'true' });
    this.#values = chart.lines.map(() => h('dd', { class: 'chart-value' }));
    this.#note = h('span', { class: 'chart-note' });
    const values = chart.lines.map(({ label, colour }, at) => {
      const swatch = h('span', { class: 'swatch' });
      swatch.style.background = `var(${colour})`;
      return h('div', {}, h('dt', {}, swatch, label), this.#values[at] ?? '');
    });
    this.element = h(
      'figure',
      { class: 'chart' },
      h('figcaption', {}, h('h3', {}, chart.title), this.#note),
      h('dl', { class: 'chart-values' }, ...values),
      this.#plotArea,
    );
    new ResizeObserver(() => this.#fit()).observe(this.#plotArea);
  }

  /** @param {History} history */
  show(history) {
    const sameSpan = this.#history?.span === history.span;
    this.#history = history;
    if (this.#plot === undefined || !sameSpan) this.redraw();
    else this.#plot.setData(this.#data(history));
    this.#showValues(undefined);
  }

  /** Creates the plot again, for example after a change of the colours or the time range. */
  redraw() {
    if (this.#history === undefined) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data(this.#history), this.#plotArea);
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#plotArea;
    if (width > 0) this.#plot?.setSize({ width, height });
  }

  /**
   * Returns the columns in uPlot's layout. In a stacked chart, each returned column is the sum of a column and all
   * columns below it. The highest sum comes first, because uPlot draws later columns over earlier ones.
   * @param {History} history
   * @returns {uPlot.AlignedData}
   */
  #data(history) {
    const columns = this.#chart.lines.map(({ of }) => of(history));
    const length = columns[0]?.length ?? 0;
    const times = Array.from({ length }, (_, at) => timeAt(history, at, length));
    if (this.#chart.stacked !== true) return [times, ...columns];
    /** @type {Column[]} */
    const stacked = [];
    for (const column of columns) {
      const below = stacked.at(-1);
      stacked.push(column.map((value, at) => (value === null ? null : value + (below?.[at] ?? 0))));
    }
    return [times, ...stacked.reverse()];
  }

  /** @returns {uPlot.Options} */
  #options() {
    const { lines, minTop, top = Infinity, format, steps, stacked } = this.#chart;
    const ink = colour('--ink-3');
    const axis = { stroke: ink, font: AXIS_FONT, ticks: { show: false } };
    return {
      width: Math.max(1, this.#plotArea.clientWidth),
      height: this.#plotArea.clientHeight,
      padding: [8, 20, 0, 0], // half a label of the last tick
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: stacked !== true, size: 6 },
        sync: { key: 'traffic' },
        drag: { x: false, y: false },
      },
      scales: {
        x: { time: true },
        y: { range: (_plot, _low, high) => [0, Math.min(top, Math.max(minTop, (high ?? 0) * 1.1))] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 26,
          space: 64,
          values: (_plot, splits) => splits.map(clockTime),
        },
        {
          ...axis,
          grid: { stroke: colour('--line'), width: 1 },
          size: AXIS_WIDTH,
          space: 34,
          ...(steps === undefined ? {} : { incrs: steps }),
          values: (_plot, splits) => splits.map((value) => (value === 0 ? '0' : format(value))),
        },
      ],
      series: [{}, ...(stacked === true ? lines.toReversed().map(barSeries) : lines.map(lineSeries))],
      hooks: { setCursor: [(plot) => this.#showValues(plot.cursor.idx ?? undefined)] },
    };
  }

  /**
   * Shows the values at the cursor. Without a cursor, a stacked chart shows totals; any other chart shows the latest
   * values, with a maximum or minimum.
   * @param {number | undefined} at - the index of the step under the cursor
   */
  #showValues(at) {
    const history = this.#history;
    if (history === undefined) return;
    const { lines, format, stacked } = this.#chart;
    const columns = lines.map(({ of }) => of(history));
    const pointed = at !== undefined && columns[0]?.[at] !== undefined;
    for (const [index, column] of columns.entries()) {
      const total = () => column.reduce((/** @type {number} */ all, value) => all + (value ?? 0), 0);
      const value = pointed ? column[at] : stacked === true ? total() : column.at(-1);
      const element = this.#values[index];
      if (element === undefined) continue;
      setText(element, value === null || value === undefined ? '–' : format(value));
      const isZero = stacked === true && (value ?? 0) === 0;
      element.parentElement?.classList.toggle('zero', isZero);
    }
    setText(
      this.#note,
      pointed ? clockTime(timeAt(history, at, columns[0]?.length ?? 0)) : summaryNote(this.#chart, columns),
    );
  }
}

/** @param {Chart} chart @param {Column[]} columns */
function summaryNote({ stacked, format, top }, columns) {
  const values = columns.flat().filter((value) => value !== null);
  if (values.length === 0) return TEXTS.lines.noData;
  if (stacked === true) {
    const total = values.reduce((all, value) => all + value, 0);
    return total === 0 ? TEXTS.lines.none : TEXTS.lines.total(count(total));
  }
  return top === undefined
    ? TEXTS.lines.max(format(Math.max(...values)))
    : TEXTS.lines.min(format(Math.min(...values)));
}

/** @param {History} history @param {number} at @param {number} length */
function timeAt({ endsAt, stepSeconds }, at, length) {
  return Date.parse(endsAt) / 1_000 - (length - at - 1) * stepSeconds;
}

/**
 * @param {Line} line
 * @param {number} at
 * @returns {uPlot.Series}
 */
function lineSeries({ label, colour: name }, at) {
  const area = at === 0 ? { fill: colour('--accent-soft') } : {};
  return { label, stroke: colour(name), width: 1.6, points: { show: false }, ...area };
}

/**
 * @param {Line} line
 * @returns {uPlot.Series}
 */
function barSeries({ label, colour: name }) {
  const paths = uPlot.paths.bars?.({ size: [0.86, 14], align: -1 });
  return {
    label,
    fill: colour(name),
    width: 0,
    points: { show: false },
    ...(paths === undefined ? {} : { paths }),
  };
}

const AXIS_FONT = '11px system-ui, sans-serif';

const CLOCK = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit' });

/** @param {number} seconds - since the epoch */
function clockTime(seconds) {
  return CLOCK.format(seconds * 1_000);
}

/** @param {string} name - the name of a custom property in the page's styles */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
