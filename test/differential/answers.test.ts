/**
 * Responses in hundreds of spellings go through noria to HTTP clients of other projects. All clients must get the same
 * response, or all must get an error; and the response to the next request must be that of the next request.
 */
import type { Socket } from 'node:net';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { Deadlines } from '../../src/core/deadlines.ts';
import { directDialer } from '../listener/direct-dialer.ts';
import { listen } from '../listener/harness.ts';
import { rawOrigin } from '../listener/origin.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CLIENTS, type ClientKind, type GotAnswer } from './answer-clients.ts';
import { ANSWERS, type Answer } from './answer-corpus.ts';
import { RUNS_COMPILED } from './programs.ts';

const ORIGIN = 'http://a.example';
const NEXT = 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext';
const BAD_ANSWER = 502;

/** Divides an answer into segments. */
type Cut = (text: string) => string[];

const inOnePiece: Cut = (text) => [text];
/** The answer in one piece, cut between CR and LF, and cut into single bytes. */
const CUTS: readonly Cut[] = [inOnePiece, (text) => text.split(/(?<=\r)/), (text) => [...text]];
/**
 * Whether to send each answer in all cuts. One client is enough for that: the cuts test how noria reads the answer, and
 * noria does not know the client.
 */
const hasAllCuts = ({ name }: ClientKind): boolean => name === CLIENTS[0]?.name;
/** The number of further runs, in which answers are cut at random places. */
const RANDOM_RUNS = 60;

interface Target {
  readonly port: number;
  /** Sets the answer to `/`. @returns a function that returns how many requests got the answer. */
  prepare(answer: Answer, cut: Cut): () => number;
}

/** A target that answers `/` as prepared, and every other path with `next`. */
async function openTarget(): Promise<Target> {
  let prepared: { readonly answer: Answer; readonly cut: Cut } | undefined;
  let hits = 0;
  const { port } = await rawOrigin((socket) => {
    socket.setNoDelay(true);
    let head = '';
    socket.on('data', (chunk: Buffer) => {
      head += chunk.toString('latin1');
      if (!head.endsWith('\r\n\r\n')) return;
      const isNext = head.split(' ')[1] === '/next';
      head = '';
      if (isNext || prepared === undefined) {
        socket.write(NEXT);
        return;
      }
      hits += 1;
      void send(socket, prepared.answer, prepared.cut(prepared.answer.text));
    });
  });
  return {
    port,
    prepare(answer, cut) {
      prepared = { answer, cut };
      hits = 0;
      return () => hits;
    },
  };
}

async function send(socket: Socket, { ending }: Answer, segments: readonly string[]): Promise<void> {
  for (const segment of segments) {
    if (segment !== '') socket.write(segment, 'latin1');
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (ending === 'ends') socket.end();
  if (ending === 'resets') socket.resetAndDestroy();
}

/** Maps an answer to what the test compares. All errors of noria and of the connection are equal. */
function outcome({ status, body, error }: GotAnswer): Answer['expected'] {
  return error !== undefined || status === BAD_ANSWER ? 'error' : { status, body };
}

function cutAt(places: readonly number[]): Cut {
  return (text) => {
    const borders = [
      0,
      ...places.map((place) => place % (text.length + 1)).sort((a, b) => a - b),
      text.length,
    ];
    return borders.slice(1).map((end, nth) => text.slice(borders[nth], end));
  };
}

for (const kind of CLIENTS.filter(({ name }) => RUNS_COMPILED || !name.startsWith('Go'))) {
  test.skipIf(kind.isMissing)(
    `differential answers: ${kind.name} gets what noria means, or an error`,
    async () => {
      const target = await openTarget();
      const { port } = await listen(directDialer({ to: { port: target.port } }), {
        deadlines: new Deadlines(new ManualClock(), 5),
      });
      const client = await kind.open(port);
      const answers = ANSWERS.filter(({ hasInterim }) => !hasInterim || kind.misreadsInterim !== true);
      const check = async (answer: Answer, cut: Cut): Promise<void> => {
        const what = `${answer.name}: ${JSON.stringify(cut(answer.text))}`;
        const hits = target.prepare(answer, cut);
        const got = await client.ask(answer.method, `${ORIGIN}/`);
        expect(outcome(got), `${what} ${JSON.stringify(got)}`).toEqual(answer.expected);
        // noria may repeat a request that got no byte of an answer.
        if (answer.text !== '') expect(hits(), what).toBe(1);
        const next = await client.ask('GET', `${ORIGIN}/next`);
        expect(next, `after ${what}`).toEqual({ status: 200, body: 'next' });
      };
      expect(answers.length).toBeGreaterThan(150);
      const cuts = hasAllCuts(kind) ? CUTS : [inOnePiece];
      for (const answer of answers) for (const cut of cuts) await check(answer, cut);
      const places = fc.array(fc.nat(1_000), { maxLength: 8 });
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...answers), places, (answer, at) => check(answer, cutAt(at))),
        { numRuns: RANDOM_RUNS },
      );
    },
  );
}
