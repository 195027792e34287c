/**
 * Requests in hundreds of spellings go through noria to HTTP servers of other projects. Each server must see exactly
 * the requests that noria served, once each and with their meaning, and no part of those that noria refused.
 */
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { directDialer } from '../listener/direct-dialer.ts';
import { listen, RawClient } from '../listener/harness.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { RUNS_COMPILED } from './programs.ts';
import { DECLINED, REFUSED } from './refused-requests.ts';
import { BACKENDS, type Backend, digest } from './request-backends.ts';
import { allCases, type ConnectionCase, RequestNumbers, textOf } from './request-cases.ts';
import {
  BODIES,
  HOST,
  METHODS,
  NO_BODY,
  type SeenRequest,
  type SentRequest,
  sortFields,
} from './request-corpus.ts';
import { fits, PLAIN, SERVED } from './served-requests.ts';

const CLIENTS = 8;
/** The number of further connections with random requests, cut at random places. */
const RANDOM_RUNS = 100;
const ANSWER = /^(?:X-Seen: (.*)|X-Noria-Error: (?!members-failed|internal)(.*))\r$/gm;
const REFUSAL = 'an error';

/** Returns what the client gets for each request, up to the first refused one. */
function answersTo(requests: readonly SentRequest[]): string[] {
  const end = requests.findIndex(({ verdict }) => verdict === 'refused');
  return requests
    .slice(0, end < 0 ? requests.length : end + 1)
    .map(({ seen }) => (seen === undefined ? REFUSAL : digest(seen)));
}

function answersIn(received: string): string[] {
  return [...received.matchAll(ANSWER)].map(([, seen]) => seen ?? REFUSAL);
}

/** Sends a case. Unless noria closes the connection, sends one more request, which shows that no byte was left over. */
async function send(port: number, given: ConnectionCase, numbers: RequestNumbers): Promise<SeenRequest[]> {
  const closes = given.requests.some(({ verdict }) => verdict === 'refused');
  const last = closes ? [] : [numbers.make(PLAIN, 'GET', NO_BODY)];
  const requests = [...given.requests, ...last];
  const expected = answersTo(requests);
  const client = await RawClient.openUntracked(port);
  /** Resolves at the first wrong answer. */
  const untilAnswered = (count: number): Promise<string> =>
    client.until('the answers', (received) => {
      const answers = answersIn(received);
      const isRight = answers.every((answer, nth) => answer === expected[nth]);
      return client.ended || client.closed || !isRight || (!closes && answers.length >= count);
    });
  try {
    await sendSegments(client, given);
    await untilAnswered(given.requests.length);
    client.send(textOf(last));
    await untilAnswered(requests.length);
  } finally {
    client.socket.destroy();
  }
  const sent = given.requests.map(({ name, text }) => `${name}: ${JSON.stringify(text)}`).join('\n');
  expect(answersIn(client.received), `${sent}\n${JSON.stringify(client.received)}`).toEqual(expected);
  return requests.slice(0, expected.length).flatMap(({ seen }) => (seen === undefined ? [] : [seen]));
}

async function sendSegments(client: RawClient, { requests, segments }: ConnectionCase): Promise<void> {
  client.socket.setNoDelay(true);
  let text = textOf(requests);
  for (const length of segments.filter((count) => count > 0)) {
    client.send(text.slice(0, length));
    text = text.slice(length);
    await new Promise((resolve) => setImmediate(resolve));
  }
  client.send(text);
}

/**
 * Compares everything that the backend reported. One more request, sent directly, shows that the report is complete.
 */
async function compare(backend: Backend, expected: readonly SeenRequest[]): Promise<void> {
  const client = await RawClient.open(backend.port);
  client.send('GET /the-last HTTP/1.1\r\nHost: x\r\n\r\n');
  await until('the report', () => backend.seen.some(({ target }) => target === '/the-last'));
  const seen = backend.seen.filter(({ target }) => target !== '/the-last');
  const byTarget = (a: SeenRequest, b: SeenRequest): number => (a.target < b.target ? -1 : 1);
  expect(seen.map((request) => ({ ...request, fields: sortFields(request.fields) })).sort(byTarget)).toEqual(
    expected.toSorted(byTarget),
  );
}

const random = fc.record({
  parts: fc.array(
    fc.tuple(
      fc.constantFrom(...SERVED, ...SERVED, ...DECLINED, ...REFUSED),
      fc.constantFrom(...METHODS),
      fc.constantFrom(...BODIES),
    ),
    { minLength: 1, maxLength: 4 },
  ),
  segments: fc.array(fc.nat(200), { maxLength: 12 }),
});

const CREDENTIALS = 'Basic bTpt';
const OF_TARGET = { name: '', dialer: {}, asSeen: (request: SeenRequest): SeenRequest => request };
/** A member that forwards requests sees them in absolute form, with the member's own credentials. */
const OF_MEMBER = {
  name: ' as a member',
  dialer: { absolute: { proxyAuthorization: CREDENTIALS } },
  asSeen: (request: SeenRequest): SeenRequest => ({
    ...request,
    target: `http://${HOST}${request.target}`,
    fields: sortFields([...request.fields, `proxy-authorization: ${CREDENTIALS}`]),
  }),
};

const KINDS = BACKENDS.filter(({ name }) => RUNS_COMPILED || !name.startsWith('Go')).flatMap((kind) => [
  { ...kind, role: OF_TARGET },
  ...(kind.name === 'Python h11' ? [{ ...kind, role: OF_MEMBER }] : []),
]);

for (const { name, isMissing, open, role } of KINDS) {
  test.skipIf(isMissing)(
    `differential requests: ${name}${role.name} sees what noria means, once`,
    async () => {
      const backend = await open();
      const dialer = directDialer({ to: { port: backend.port }, reuse: true, ...role.dialer });
      const { port } = await listen(dialer, { deadlines: new Deadlines(new ManualClock(), 5) });
      const numbers = new RequestNumbers(role.asSeen);
      const cases = allCases(numbers);
      expect(cases.length).toBeGreaterThan(250);
      const expected: SeenRequest[] = [];
      const work = cases.values();
      const workers = Array.from({ length: CLIENTS }, async () => {
        for (const given of work) expected.push(...(await send(port, given, numbers)));
      });
      await Promise.all(workers);
      await fc.assert(
        fc.asyncProperty(random, async ({ parts, segments }) => {
          const requests = parts
            .map(([spelling, method, body]) => numbers.make(spelling, method, body))
            .filter(fits);
          if (requests.length > 0) expected.push(...(await send(port, { requests, segments }, numbers)));
        }),
        { numRuns: RANDOM_RUNS },
      );
      await compare(backend, expected);
    },
  );
}
