import { expect, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { openTestAdmin } from './open-test-admin.ts';

test('event-stream: sends events as they happen, and stops when the client disconnects', async () => {
  const { url, bus } = await openTestAdmin();
  const answer = await fetch(`${url}/api/events`);
  expect(answer.headers.get('content-type')).toContain('text/event-stream');
  const reader = readerOf(answer);
  await reader.readUntil('event: hello');
  bus.emit('source.warned', { source: 'city', message: 'slow down' });
  await reader.readUntil('event: source.warned\ndata: {"source":"city","message":"slow down"}\n\n');
  await reader.cancel();
  await until('the subscription is disposed', () => !bus.hasSubscribers('source.warned'));
});

test('event-stream: `only` selects events, and refuses unknown names', async () => {
  const { url, bus } = await openTestAdmin();
  const reader = readerOf(await fetch(`${url}/api/events?only=source.warned,session.bound`));
  await reader.readUntil('event: hello');
  bus.emit('session.ended', { session: 'abc', reason: 'idle' });
  bus.emit('session.bound', { session: 'abc', member: 'm1' });
  expect(await reader.readUntil('event: session.bound')).not.toContain('session.ended');
  const refused = await fetch(`${url}/api/events?only=source.warned,dial.attempted`);
  expect([refused.status, await refused.json()]).toEqual([
    400,
    {
      error: {
        code: 'bad-request',
        message: 'the parameter "only" contains an unknown event: dial.attempted',
      },
    },
  ]);
  await reader.cancel();
});

test('event-stream: disconnects a client that does not read, and drops its events', async () => {
  const { url, bus } = await openTestAdmin();
  const slow = await fetch(`${url}/api/events?only=source.warned`);
  await until('the client is subscribed', () => bus.hasSubscribers('source.warned'));
  const message = 'x'.repeat(10_000);
  await until('the client is disconnected', () => {
    for (let at = 0; at < 200; at += 1) bus.emit('source.warned', { source: 'city', message });
    return !bus.hasSubscribers('source.warned');
  });
  await slow.body?.cancel();
});

test('event-stream: serves at most 16 clients of an address, and a HEAD request does not count', async () => {
  const { url, bus } = await openTestAdmin();
  const head = await fetch(`${url}/api/events`, { method: 'HEAD' });
  expect([head.status, bus.hasSubscribers('source.warned')]).toEqual([200, false]);
  const readers = await Promise.all(
    Array.from({ length: 16 }, async () => readerOf(await fetch(`${url}/api/events`))),
  );
  await Promise.all(readers.map((reader) => reader.readUntil('event: hello')));
  const refused = await fetch(`${url}/api/events`);
  expect([refused.status, await refused.json()]).toEqual([
    503,
    {
      error: {
        code: 'too-many-readers',
        message: '16 clients at this address already read the stream: close one of them',
      },
    },
  ]);
  await Promise.all(readers.map((reader) => reader.cancel()));
  await until('the subscriptions are disposed', () => !bus.hasSubscribers('source.warned'));
  const reader = readerOf(await fetch(`${url}/api/events`));
  await reader.readUntil('event: hello');
  await reader.cancel();
});

test('event-stream: sends a heartbeat every five seconds', async () => {
  const clock = new ManualClock();
  const { url } = await openTestAdmin({ clock });
  const reader = readerOf(await fetch(`${url}/api/events`));
  await reader.readUntil('event: hello');
  await until('the heartbeat is armed', () => clock.armedCount === 1);
  clock.advance(5_000);
  await reader.readUntil(': heartbeat');
  await reader.cancel();
  await until('its timer is cleared', () => clock.armedCount === 0);
});

/** Reads the stream of a response until it contains a text. */
function readerOf(answer: Response) {
  const reader = (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  const readUntil = async (wanted: string) => {
    while (!text.includes(wanted)) {
      const { value, done } = await reader.read();
      if (done) throw new Error(`the stream ended before ${wanted}: ${text}`);
      text += value;
    }
    return text;
  };
  return { readUntil, cancel: () => reader.cancel() };
}
