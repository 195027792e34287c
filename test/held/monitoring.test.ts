import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { openMetrics } from '../../src/admin/metrics.ts';
import { SOURCE_STATES } from '../../src/refill/status.ts';
import { fakeBackend } from '../admin/fake-backend.ts';
import { strictBus } from '../admin/open-test-admin.ts';
import { hasCommand } from '../support/tools.ts';
import { inBothLanguages } from '../support/translations.ts';

const ALERTS = 'docs/operations/alerts.yaml';
const DASHBOARD = 'docs/operations/grafana-dashboard.json';
/** Labels that Prometheus adds at the scrape. */
const SCRAPE_LABELS = ['instance', 'job'];
const PROMTOOL = hasCommand('promtool');

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly { readonly alert: string; readonly expr: string }[];
  }[];
}
interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

const alerts = (parse(readFileSync(ALERTS, 'utf8')) as Rules).groups.flatMap(({ rules }) => rules);
const panels = (JSON.parse(readFileSync(DASHBOARD, 'utf8')) as { panels: readonly Panel[] }).panels;
const expressions = [
  ...alerts.map(({ alert, expr }) => ({ where: alert, expr })),
  ...panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ where: title, expr }))),
];

/** The labels of every metric, by its name. */
function labelsByMetric(): ReadonlyMap<string, readonly string[]> {
  const bus = strictBus();
  const metrics = openMetrics(bus, fakeBackend());
  onTestFinished(() => metrics.close());
  return new Map(metrics.list().map(({ name, labels }) => [name, labels]));
}

/** The metrics in an expression, each with the labels that select its series. */
function metricsIn(expr: string): { name: string; labels: string[] }[] {
  return [...expr.matchAll(/\b((?:noria|process|nodejs)_\w+?)(?:_bucket)?(?:\{([^}]*)\}|(?![\w{]))/g)].map(
    ([, name = '', chosen = '']) => ({
      name,
      labels: [...chosen.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label = '']) => label),
    }),
  );
}

test('docs/operations: alerts and dashboard use existing metrics and labels', () => {
  const known = labelsByMetric();
  expect(alerts.map(({ alert }) => alert)).toEqual([
    'NoriaNotReady',
    'NoriaSourceHalted',
    'NoriaPaceRefused',
    'NoriaFleetStoreLost',
    'NoriaFleetStoreSlow',
    'NoriaSpendHigh',
    'NoriaManyBans',
    'NoriaUserFailing',
  ]);
  expect(panels.length).toBeGreaterThan(15);
  for (const { where, expr } of expressions) {
    const metrics = metricsIn(expr);
    expect(metrics.length, `${where} has a metric`).toBeGreaterThan(0);
    for (const { name, labels } of metrics) {
      expect([...known.keys()], where).toContain(name);
      for (const label of labels)
        expect([...SCRAPE_LABELS, ...(known.get(name) ?? [])], where).toContain(label);
    }
  }
});

test.each(inBothLanguages('docs/operations/monitoring.md'))('$file: lists every alert', ({ text }) => {
  const rows = [...text.matchAll(/^\| `(Noria\w+)` \|/gm)].map(([, alert]) => alert);
  expect(rows).toEqual(alerts.map(({ alert }) => alert));
});

test('docs/operations: the dashboard shows every metric of noria', () => {
  const shown = new Set(expressions.flatMap(({ expr }) => metricsIn(expr).map(({ name }) => name)));
  const own = [...labelsByMetric().keys()].filter((name) => name.startsWith('noria_'));
  expect(own.length).toBeGreaterThan(10);
  expect(own.filter((name) => !shown.has(name))).toEqual([]);
});

test('docs/operations: expressions use existing source states', () => {
  const states = expressions.flatMap(({ expr }) =>
    [...expr.matchAll(/noria_source_state\{[^}]*state="(\w+)"/g)].map(([, state = '']) => state),
  );
  expect(states.length).toBeGreaterThan(0);
  for (const state of states) expect(SOURCE_STATES).toContain(state);
});

test.skipIf(!PROMTOOL)('docs/operations: the alert rules are valid', () => {
  expect(execFileSync('promtool', ['check', 'rules', ALERTS], { encoding: 'utf8' })).toContain(
    '8 rules found',
  );
});

test.skipIf(!PROMTOOL)('docs/operations: the alerts fire as their tests expect', () => {
  const run = spawnSync('promtool', ['test', 'rules', 'test/fixtures/monitoring/alerts.test.yaml'], {
    encoding: 'utf8',
  });
  expect(run.stdout + run.stderr).toContain('SUCCESS');
  expect(run.status).toBe(0);
});

test.skipIf(!PROMTOOL)('metrics: promtool accepts the page', async () => {
  const bus = strictBus();
  const metrics = openMetrics(bus, fakeBackend(), false);
  onTestFinished(() => metrics.close());
  bus.emit('dial.ended', {
    outcome: 'accepted',
    attempts: 1,
    ms: 3,
    waitedMs: 0,
    target: 'a:1',
    remainingMs: 9,
  });
  bus.emit('hedge.ended', { outcome: 'won' });
  const run = spawnSync('promtool', ['check', 'metrics'], {
    input: await metrics.render(),
    encoding: 'utf8',
  });
  expect([run.status, run.stdout + run.stderr]).toEqual([0, '']);
});
