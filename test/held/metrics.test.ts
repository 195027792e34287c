import { readFileSync } from 'node:fs';
import { expect, onTestFinished, test } from 'vitest';
import { openMetrics } from '../../src/admin/metrics.ts';
import { fakeBackend } from '../admin/fake-backend.ts';
import { strictBus } from '../admin/open-test-admin.ts';

test('docs/metrics.md: lists exactly the metrics, with type and labels', async () => {
  const bus = strictBus();
  const metrics = openMetrics(bus, fakeBackend(), false);
  onTestFinished(() => metrics.close());
  const coded = metrics.list().map(({ name, type, labels }) => `${name} ${type} ${labels.join(' ')}`.trim());
  const page = readFileSync('docs/metrics.md', 'utf8');
  const listed = [...page.matchAll(/^\| `(noria_\w+)` \| (\w+) \| ([^|]*)\|/gm)].map(
    ([, name, type, labels = '']) =>
      `${name} ${type} ${[...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label).join(' ')}`.trim(),
  );
  expect(coded.length, 'nothing to compare').toBeGreaterThan(0);
  expect(listed.sort()).toEqual(coded.sort());
});
