/**
 * Connections full of requests: each combines a spelling, a body, a method, a place in the pipeline, and segment
 * borders.
 */
import { DECLINED, REFUSED } from './refused-requests.ts';
import {
  BODIES,
  type Body,
  METHODS,
  NO_BODY,
  type SeenRequest,
  type SentRequest,
  type Spelling,
} from './request-corpus.ts';
import { fits, PLAIN, SERVED } from './served-requests.ts';

/** What one client sends, and how it is cut into segments. */
export interface ConnectionCase {
  readonly requests: readonly SentRequest[];
  /** The lengths of the segments. The last segment has the remaining bytes. */
  readonly segments: readonly number[];
}

/** Converts what a target must see to what this backend reports. */
type AsSeen = (request: SeenRequest) => SeenRequest;

/** Makes the text of each request unique by a number in its path. */
export class RequestNumbers {
  readonly #asSeen: AsSeen;
  #next = 0;

  constructor(asSeen: AsSeen) {
    this.#asSeen = asSeen;
  }

  make(spelling: Spelling, method: string, body: Body): SentRequest {
    this.#next += 1;
    const { seen, ...sent } = spelling(`${this.#next}`, method, body);
    return seen === undefined ? sent : { ...sent, seen: this.#asSeen(seen) };
  }
}

/** With how many bodies each served spelling is tested. */
const BODIES_PER_SPELLING = 5;
/** This number of bytes at the end of a connection are sent one by one. */
const SINGLE_BYTES = 120;

/** Returns all spellings and bodies of the corpus; methods, places and segments are used in turn. */
export function allCases(numbers: RequestNumbers): ConnectionCase[] {
  const requests = [...SERVED, ...DECLINED].flatMap((spelling, nth) =>
    Array.from({ length: BODIES_PER_SPELLING }, (_, at) => {
      const body = BODIES[(nth + at * 3) % BODIES.length] ?? NO_BODY;
      return numbers.make(spelling, METHODS[(nth + at) % METHODS.length] ?? 'GET', body);
    }),
  );
  const refused = REFUSED.map((spelling, nth) =>
    numbers.make(spelling, METHODS[nth % METHODS.length] ?? 'GET', NO_BODY),
  );
  return [...requests.filter(fits), ...refused].map((request, nth) => {
    const placed = place(request, nth % 4, numbers);
    return { requests: placed, segments: SEGMENTS[nth % SEGMENTS.length]?.(textOf(placed)) ?? [] };
  });
}

export function textOf(requests: readonly SentRequest[]): string {
  return requests.map(({ text }) => text).join('');
}

/** Puts the request alone, first, in the middle or last. */
function place(request: SentRequest, nth: number, numbers: RequestNumbers): SentRequest[] {
  const other = (at: number): SentRequest =>
    numbers.make(PLAIN, at === 1 ? 'POST' : 'GET', BODIES[at] ?? NO_BODY);
  const before = nth >= 2 ? [other(2)] : [];
  const after = nth === 1 || nth === 2 ? [other(1), other(0)] : [];
  return [...before, request, ...after];
}

const SEGMENTS: readonly ((text: string) => number[])[] = [
  () => [],
  // cuts between CR and LF
  (text) =>
    text
      .split('\r')
      .slice(0, -1)
      .map((part) => part.length + 1),
  (text) => [text.length - SINGLE_BYTES, ...Array.from({ length: SINGLE_BYTES }, () => 1)],
  (text) => [Math.floor(text.length / 3), Math.floor(text.length / 3)],
  // cuts after each line end
  (text) =>
    text
      .split('\n')
      .slice(0, -1)
      .map((part) => part.length + 1),
];
