/** Many requests at once on one connection. None is lost, whatever is between them and however they are split. */
import * as fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { Deadlines } from '../../../src/core/deadlines.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { runsOf } from '../../support/properties.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient, untilStill } from '../harness.ts';
import { rawOrigin } from '../origin.ts';
import { openRecorder } from './recorder.ts';

test('pipelining: hundreds of requests at once are all answered, in order', async () => {
  const recorder = await openRecorder();
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  const count = 300;
  const requests = Array.from(
    { length: count },
    (_, nth) => `GET http://127.0.0.1:${recorder.port}/${nth} HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  client.send(requests.join(''));
  await client.until('all answers', (text) => text.includes(`<GET /${count - 1} >`));
  const expected = Array.from({ length: count }, (_, nth) => `GET /${nth} `);
  expect(recorder.requests).toEqual(expected);
  expect([...client.received.matchAll(/<(.*?)>/g)].map(([, echoed]) => echoed)).toEqual(expected);
});

test('pipelining: requests that wait apply back-pressure to the client', async () => {
  const origin = await rawOrigin(); // a target that never answers
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await until('the dial', () => dialer.requests.length === 1);
  const size = 64 * 1024 * 1024;
  const sent = client.sendBytes(size);
  await untilStill('back-pressure', () => sent.bytes);
  expect(sent.bytes).toBeLessThan(size);
  expect(dialer.requests.length).toBe(1);
});

test('pipelining: noria does not read from a client that does not read its answers', async () => {
  const { port, events } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.socket.pause();
  const request = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2_000);
  let written = 0;
  const write = (): void => {
    while (written < 1_000 && client.socket.write(request)) written += 1;
    written += 1;
  };
  client.socket.on('drain', write);
  write();
  await untilStill('back-pressure', () => events('client.refused').length);
  expect(written).toBeLessThan(1_000);
});

test('pipelining: an empty line after a body begins no request', async () => {
  const recorder = await openRecorder();
  const clock = ManualClock.dayOld();
  const { port, events } = await listen(directDialer(), {
    deadlines: new Deadlines(clock, 5),
    headerTimeoutMs: 10_000,
  });
  const client = await RawClient.open(port);
  const post = `POST http://127.0.0.1:${recorder.port}/ HTTP/1.1\r\nContent-Length: 1\r\n\r\nx\r\n`;
  client.send(post);
  await client.until('the first answer', (text) => text.endsWith('>'));
  clock.advance(10_100);
  client.send(post);
  await client.until('the second answer', (text) => text.split('<POST / x>').length === 3);
  client.end();
  await client.whole();
  expect(client.received).not.toContain('HTTP/1.1 4');
  expect(events('client.refused')).toEqual([]);
});

test('pipelining: a client that sends only empty lines is cut off', async () => {
  const clock = ManualClock.dayOld();
  const { port, events } = await listen(directDialer(), {
    deadlines: new Deadlines(clock, 5),
    headerTimeoutMs: 10_000,
  });
  const client = (await RawClient.open(port)).send('\r\n'.repeat(100));
  await until('the end', () => {
    clock.advance(1_000);
    return client.ended;
  });
  expect(client.received).toMatch(/^HTTP\/1\.1 408 /);
  expect(events('client.refused')).toMatchObject([{ code: 'request-timeout' }]);
});

interface Part {
  readonly sent: string;
  readonly seen: string;
}

const url = 'http://127.0.0.1:PORT';
/** A request as it is sent, and what the target sees of it: method, path and body. */
const part: fc.Arbitrary<Part> = fc
  .tuple(fc.constantFrom('get', 'upgrade', 'length', 'chunked'), fc.nat(999))
  .map(([kind, nth]): Part => {
    // A body that looks like a request. If noria misread where a body ends, the target would see this request.
    const body = `DELETE ${url}/in-the-body HTTP/1.1\r\nHost: x\r\n\r\n`;
    switch (kind) {
      case 'get':
        return { sent: `GET ${url}/${nth} HTTP/1.1\r\nHost: x\r\n\r\n`, seen: `GET /${nth} ` };
      case 'upgrade':
        return {
          sent: `GET ${url}/${nth} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: ${nth % 2 === 0 ? 'websocket' : 'h2c'}\r\n\r\n`,
          seen: `GET /${nth} `,
        };
      case 'length':
        return {
          sent: `POST ${url}/${nth} HTTP/1.1\r\nHost: x\r\nContent-Length: LENGTH\r\n\r\n${body}`,
          seen: `POST /${nth} ${body}`,
        };
      default:
        return {
          sent: `POST ${url}/${nth} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n${body[0]}\r\nREST\r\n${body.slice(1)}\r\n0\r\n\r\n`,
          seen: `POST /${nth} ${body}`,
        };
    }
  });

test('pipelining: the target sees each request once, however the bytes are split', async () => {
  const recorder = await openRecorder();
  const { port } = await listen(directDialer());
  const clients: RawClient[] = [];
  onTestFinished(() => {
    for (const client of clients) client.socket.destroy();
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(part, { minLength: 1, maxLength: 6 }),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 }),
      async (parts, cuts) => {
        recorder.requests.length = 0;
        const bodyBytes = `DELETE http://127.0.0.1:${recorder.port}/in-the-body HTTP/1.1\r\nHost: x\r\n\r\n`
          .length;
        const sent = parts
          .map(({ sent: text }) => text)
          .join('')
          .replaceAll('PORT', `${recorder.port}`)
          .replaceAll('LENGTH', `${bodyBytes}`)
          .replaceAll('REST', (bodyBytes - 1).toString(16));
        const client = await RawClient.openUntracked(port);
        clients.push(client);
        client.socket.setNoDelay(true);
        const places = [
          0,
          ...cuts.map((cut) => Math.floor(cut * sent.length)).sort((a, b) => a - b),
          sent.length,
        ];
        for (const [nth, end] of places.slice(1).entries()) {
          client.send(sent.slice(places[nth], end));
          await new Promise((resolve) => setImmediate(resolve));
        }
        const answers = (text: string) => text.match(/HTTP\/1\.1 \d{3} /g)?.length ?? 0;
        await client.until('all answers', (text) => answers(text) === parts.length && text.endsWith('>'));
        client.socket.destroy();
        expect(recorder.requests).toEqual(
          parts.map(({ seen }) => seen.replaceAll('PORT', `${recorder.port}`)),
        );
      },
    ),
    { numRuns: runsOf(150) },
  );
});
