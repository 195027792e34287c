// @ts-check
/** The charts: what passed through, how quickly ways were found, and who is to blame for what failed. */
import { byId, h, setText } from './dom.js';
import { count, milliseconds, rate, size } from './format.js';
import uPlot from './uplot.js';

/**
 * @typedef {import('../schemas.ts').HistoryView} History
 * @typedef {(number | null)[]} Column
 * @typedef {{ label: string, colour: string, of: (history: History) => Column }} Line
 * @typedef {{ title: string, show: (value: number) => string, steps?: number[], stacked?: boolean, least: number, lines: Line[] }} Chart
 */

const AXIS_WIDTH = 52;

/** Steps of an axis that reads in KiB and MiB. */
const BINARY_STEPS = Array.from({ length: 40 }, (_, power) => 2 ** power);

/** Steps of an axis that counts. */
const WHOLE_STEPS = Array.from({ length: 8 }, (_, power) =>
  [1, 2, 5].map((step) => step * 10 ** power),
).flat();

/** @type {Chart[]} */
const CHARTS = [
  {
    title: 'Tunnels a second',
    show: rate,
    least: 1,
    lines: [{ label: 'tunnels', colour: '--water', of: ({ tunnelsPerSecond }) => tunnelsPerSecond }],
  },
  {
    title: 'Bytes a second',
    show: size,
    steps: BINARY_STEPS,
    least: 1_024,
    lines: [
      { label: 'down', colour: '--water', of: ({ bytesDownPerSecond }) => bytesDownPerSecond },
      { label: 'up', colour: '--second', of: ({ bytesUpPerSecond }) => bytesUpPerSecond },
    ],
  },
  {
    title: 'Time to find a way',
    show: milliseconds,
    least: 20,
    lines: [
      { label: 'half within', colour: '--water', of: ({ dialP50Ms }) => dialP50Ms },
      { label: '95 % within', colour: '--second', of: ({ dialP95Ms }) => dialP95Ms },
    ],
  },
  {
    title: 'Failures by blame',
    show: count,
    steps: WHOLE_STEPS,
    stacked: true,
    least: 4,
    lines: [
      { label: 'member', colour: '--blame-member', of: ({ failures }) => failures.member },
      { label: 'target', colour: '--blame-target', of: ({ failures }) => failures.target },
      { label: 'client', colour: '--blame-client', of: ({ failures }) => failures.client },
      { label: 'source', colour: '--blame-source', of: ({ failures }) => failures.source },
      { label: 'network', colour: '--blame-network', of: ({ failures }) => failures.network },
      { label: 'noria', colour: '--blame-noria', of: ({ failures }) => failures.noria },
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
  #stage;
  #values;
  #note;
  /** @type {History | undefined} */
  #history;
  /** @type {uPlot | undefined} */
  #plot;

  /** @param {Chart} chart */
  constructor(chart) {
    this.#chart = chart;
    this.#stage = h('div', { class: 'chart-stage', 'aria-hidden': 'true' });
    this.#values = chart.lines.map(() => h('dd', { class: 'reading' }));
    this.#note = h('span', { class: 'chart-note' });
    const readings = chart.lines.map(({ label, colour }, at) => {
      const swatch = h('span', { class: 'swatch' });
      swatch.style.background = `var(${colour})`;
      return h('div', {}, h('dt', {}, swatch, label), this.#values[at] ?? '');
    });
    this.element = h(
      'figure',
      { class: 'chart' },
      h('figcaption', {}, h('h3', {}, chart.title), this.#note),
      h('dl', { class: 'readings' }, ...readings),
      this.#stage,
    );
    new ResizeObserver(() => this.#fit()).observe(this.#stage);
  }

  /** @param {History} history */
  show(history) {
    const sameSpan = this.#history?.span === history.span;
    this.#history = history;
    if (this.#plot === undefined || !sameSpan) this.redraw();
    else this.#plot.setData(this.#data(history));
    this.#read(undefined);
  }

  /** Anew: colours, or the meaning of the axis, have changed. */
  redraw() {
    if (this.#history === undefined) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data(this.#history), this.#stage);
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#stage;
    if (width > 0) this.#plot?.setSize({ width, height });
  }

  /**
   * The columns as uPlot wants them; of stacked ones each stands on those before it, the tallest first.
   *
   * @param {History} history
   * @returns {uPlot.AlignedData}
   */
  #data(history) {
    const { stepSeconds, endsAt } = history;
    const end = Date.parse(endsAt) / 1_000;
    const columns = this.#chart.lines.map(({ of }) => of(history));
    const length = columns[0]?.length ?? 0;
    const times = Array.from({ length }, (_, at) => end - (length - at - 1) * stepSeconds);
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
    const { lines, least, show, steps, stacked } = this.#chart;
    const ink = colour('--ink-3');
    const axis = { stroke: ink, font: AXIS_FONT, ticks: { show: false } };
    return {
      width: Math.max(1, this.#stage.clientWidth),
      height: this.#stage.clientHeight,
      padding: [8, 4, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: stacked !== true, size: 6 },
        sync: { key: 'traffic' },
        drag: { x: false, y: false },
      },
      scales: {
        x: { time: true },
        y: { range: (_plot, _low, high) => [0, Math.max(least, (high ?? 0) * 1.1)] },
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
          values: (_plot, splits) => splits.map((value) => (value === 0 ? '0' : show(value))),
        },
      ],
      series: [{}, ...(stacked === true ? lines.toReversed().map(barSeries) : lines.map(lineSeries))],
      hooks: { setCursor: [(plot) => this.#read(plot.cursor.idx ?? undefined)] },
    };
  }

  /**
   * Writes the values at the cursor; without one the latest, with the highest beside it.
   *
   * @param {number | undefined} at
   */
  #read(at) {
    const history = this.#history;
    if (history === undefined) return;
    const { lines, show, stacked } = this.#chart;
    const columns = lines.map(({ of }) => of(history));
    const pointed = at !== undefined && columns[0]?.[at] !== undefined;
    for (const [index, column] of columns.entries()) {
      const total = () => column.reduce((/** @type {number} */ all, value) => all + (value ?? 0), 0);
      const value = pointed ? column[at] : stacked === true ? total() : column.at(-1);
      const element = this.#values[index];
      if (element === undefined) continue;
      setText(element, value === null || value === undefined ? '–' : show(value));
      const nothing = stacked === true && (value ?? 0) === 0;
      element.parentElement?.classList.toggle('zero', nothing);
    }
    setText(
      this.#note,
      pointed ? clockTime(timeAt(history, at, columns[0]?.length ?? 0)) : restingNote(this.#chart, columns),
    );
  }
}

/** @param {Chart} chart @param {Column[]} columns */
function restingNote({ stacked, show }, columns) {
  const values = columns.flat().filter((value) => value !== null);
  if (values.length === 0) return 'nothing yet';
  if (stacked === true) {
    const total = values.reduce((all, value) => all + value, 0);
    return total === 0 ? 'none' : `${count(total)} in all`;
  }
  return `highest ${show(Math.max(...values))}`;
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
  const area = at === 0 ? { fill: colour('--water-wash') } : {};
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

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });

/** @param {number} seconds - since the epoch */
function clockTime(seconds) {
  return CLOCK.format(seconds * 1_000);
}

/** @param {string} name - of a custom property of the page's style */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
