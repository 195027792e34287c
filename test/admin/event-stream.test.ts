import { expect, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { openTestAdmin } from './open-test-admin.ts';

test('admin: events reach a reader as they happen, and closing ends its stream', async () => {
  const { url, bus } = await openTestAdmin();
  const answer = await fetch(`${url}/api/events`);
  expect(answer.headers.get('content-type')).toContain('text/event-stream');
  const reader = readerOf(answer);
  await reader.readUntil('event: hello');
  bus.emit('source.warned', { source: 'city', message: 'slow down' });
  await reader.readUntil('event: source.warned\ndata: {"source":"city","message":"slow down"}\n\n');
  await reader.cancel();
  await until('the reader is forgotten', () => !bus.hears('source.warned'));
});

test('admin: a reader may ask for some events only, by names that there are', async () => {
  const { url, bus } = await openTestAdmin();
  const reader = readerOf(await fetch(`${url}/api/events?only=source.warned,session.bound`));
  await reader.readUntil('event: hello');
  bus.emit('session.ended', { session: 'abc', reason: 'idle' });
  bus.emit('session.bound', { session: 'abc', member: 'm1' });
  expect(await reader.readUntil('event: session.bound')).not.toContain('session.ended');
  const refused = await fetch(`${url}/api/events?only=source.warned,dial.attempted`);
  expect([refused.status, await refused.json()]).toEqual([
    400,
    { error: { code: 'bad-request', message: 'only: there is no event dial.attempted' } },
  ]);
  await reader.cancel();
});

test('admin: a reader that does not read is cut off, and its events are not kept', async () => {
  const { url, bus } = await openTestAdmin();
  const slow = await fetch(`${url}/api/events?only=source.warned`);
  await until('the reader is there', () => bus.hears('source.warned'));
  const message = 'x'.repeat(10_000);
  await until('the reader is cut off', () => {
    for (let at = 0; at < 200; at += 1) bus.emit('source.warned', { source: 'city', message });
    return !bus.hears('source.warned');
  });
  await slow.body?.cancel();
});

test('admin: there is room for so many readers, and a request for the head alone is none', async () => {
  const { url, bus } = await openTestAdmin();
  const head = await fetch(`${url}/api/events`, { method: 'HEAD' });
  expect([head.status, bus.hears('source.warned')]).toEqual([200, false]);
  const readers = await Promise.all(
    Array.from({ length: 64 }, async () => readerOf(await fetch(`${url}/api/events`))),
  );
  await Promise.all(readers.map((reader) => reader.readUntil('event: hello')));
  const refused = await fetch(`${url}/api/events`);
  expect([refused.status, await refused.json()]).toMatchObject([
    503,
    { error: { code: 'too-many-readers' } },
  ]);
  await Promise.all(readers.map((reader) => reader.cancel()));
  await until('the readers are forgotten', () => !bus.hears('source.warned'));
  const reader = readerOf(await fetch(`${url}/api/events`));
  await reader.readUntil('event: hello');
  await reader.cancel();
});

test('admin: a quiet stream shows every five seconds that noria is still there', async () => {
  const clock = new ManualClock();
  const { url } = await openTestAdmin({ clock });
  const reader = readerOf(await fetch(`${url}/api/events`));
  await reader.readUntil('event: hello');
  await until('the reader waits', () => clock.armedCount === 1);
  clock.advance(5_000);
  await reader.readUntil(': heartbeat');
  await reader.cancel();
  await until('its timer is gone', () => clock.armedCount === 0);
});

/** Reads the stream of an answer until it has told something. */
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
