import { expect, onTestFinished, test } from 'vitest';
import { openMetrics } from '../../src/admin/metrics.ts';
import { EventBus } from '../../src/core/events.ts';
import { fakeBackend } from './fake-backend.ts';
import { strictBus } from './open-test-admin.ts';

function openTestMetrics() {
  const bus = strictBus();
  const metrics = openMetrics(bus, fakeBackend(), false);
  onTestFinished(() => metrics.close());
  const lines = async () =>
    (await metrics.render()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return { bus, metrics, lines };
}

test('metrics: counters count events by label', async () => {
  const { bus, lines } = openTestMetrics();
  const draw = { source: 'city', asked: 5, received: 5, renewed: 1, rejected: 0, forbidden: 0, ms: 20 };
  bus.emit('draw.done', { ...draw, code: '10001', joined: 4 });
  bus.emit('draw.done', { ...draw, code: '10001', joined: 2, rejected: 3, forbidden: 3 });
  bus.emit('draw.done', { ...draw, code: 'transport', joined: 0 });
  const gone = { source: 'city', member: 'm1', protocol: 'http' as const };
  bus.emit('member.left', { ...gone, reason: 'expired', uses: 0 });
  bus.emit('member.left', { ...gone, reason: 'failed', uses: 3 });
  bus.emit('connection.closed', { listener: '127.0.0.1:8888', protocol: 'connect', outcome: 'ok', ms: 3 });
  bus.emit('tunnel.closed', {
    source: 'city',
    member: 'm1',
    kind: 'tunnel',
    bytesUp: 10,
    bytesDown: 2_000,
    ms: 3,
  });
  bus.emit('hedge.ended', { outcome: 'won' });
  expect(await lines()).toEqual(
    expect.arrayContaining([
      'noria_extractions_total{source="city",code="10001"} 2',
      'noria_extractions_total{source="city",code="transport"} 1',
      'noria_members_drawn_total{source="city"} 9',
      'noria_members_gone_total{source="city",reason="expired"} 1',
      'noria_members_gone_total{source="city",reason="failed"} 1',
      'noria_members_unused_total{source="city"} 4',
      'noria_connections_total{listener="127.0.0.1:8888",protocol="connect",outcome="ok"} 1',
      'noria_bytes_total{source="city",direction="up"} 10',
      'noria_bytes_total{source="city",direction="down"} 2000',
      'noria_hedges_total{outcome="won"} 1',
    ]),
  );
});

test('metrics: a second scrape counts nothing twice', async () => {
  const { bus, lines } = openTestMetrics();
  bus.emit('hedge.ended', { outcome: 'lost' });
  await lines();
  expect(await lines()).toContain('noria_hedges_total{outcome="lost"} 1');
});

test('metrics: gauges are read at the scrape', async () => {
  const { lines } = openTestMetrics();
  expect(await lines()).toEqual(
    expect.arrayContaining([
      'noria_members{source="city",state="ready"} 1',
      'noria_members{source="city",state="quarantined"} 0',
      'noria_source_state{source="city",state="ready"} 1',
      'noria_source_state{source="city",state="halted"} 0',
      'noria_connections_open{listener="127.0.0.1:8888"} 1',
      'noria_sessions 1',
    ]),
  );
});

test('metrics: observes duration, wait and remaining lifetime of a dial in seconds', async () => {
  const { bus, lines } = openTestMetrics();
  bus.emit('dial.ended', {
    outcome: 'accepted',
    attempts: 1,
    ms: 1_500,
    waitedMs: 250,
    target: 'a:1',
    remainingMs: 90_000,
  });
  expect(await lines()).toEqual(
    expect.arrayContaining([
      'noria_dial_seconds_sum 1.5',
      'noria_member_wait_seconds_sum 0.25',
      'noria_member_remaining_seconds_sum 90',
    ]),
  );
});

test('metrics: histogram buckets are cumulative and include their upper bound', async () => {
  const { bus, lines } = openTestMetrics();
  const dial = { outcome: 'accepted', attempts: 1, waitedMs: 0, target: 'a:1' } as const;
  for (const ms of [3, 250, 251, 60_000]) bus.emit('dial.ended', { ...dial, ms });
  const buckets = (await lines()).filter((line) => line.startsWith('noria_dial_seconds'));
  expect(buckets).toEqual([
    'noria_dial_seconds_bucket{le="0.005"} 1',
    'noria_dial_seconds_bucket{le="0.01"} 1',
    'noria_dial_seconds_bucket{le="0.025"} 1',
    'noria_dial_seconds_bucket{le="0.05"} 1',
    'noria_dial_seconds_bucket{le="0.1"} 1',
    'noria_dial_seconds_bucket{le="0.25"} 2',
    'noria_dial_seconds_bucket{le="0.5"} 3',
    'noria_dial_seconds_bucket{le="1"} 3',
    'noria_dial_seconds_bucket{le="2.5"} 3',
    'noria_dial_seconds_bucket{le="5"} 3',
    'noria_dial_seconds_bucket{le="10"} 3',
    'noria_dial_seconds_bucket{le="30"} 3',
    'noria_dial_seconds_bucket{le="+Inf"} 4',
    'noria_dial_seconds_sum 60.504',
    'noria_dial_seconds_count 4',
  ]);
});

test('metrics: process metrics appear once, however many servers were opened', async () => {
  const buses = [1, 2].map(() => new EventBus(() => {}));
  const opened = buses.map((bus) => openMetrics(bus, fakeBackend()));
  const [first, second] = opened;
  first?.close();
  const page = (await second?.render()) ?? '';
  expect(page.match(/^# TYPE process_cpu_seconds_total counter$/gm)).toHaveLength(1);
  expect(page.match(/^# TYPE noria_sessions gauge$/gm)).toHaveLength(1);
  expect(page).toMatch(/^process_resident_memory_bytes \d+$/m);
  second?.close();
});

test('metrics: closing stops following the events', () => {
  const { bus, metrics } = openTestMetrics();
  expect(bus.hasSubscribers('dial.ended')).toBe(true);
  metrics.close();
  expect(bus.hasSubscribers('dial.ended')).toBe(false);
});
