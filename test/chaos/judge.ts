/** The invariants of a run. Each violation is one sentence with the deciding numbers. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Recording } from './record.ts';
import { INTERVAL_MS, SECRETS } from './stage.ts';
import type { Life } from './subject.ts';

/** The minimum share of successes among the exchanges that no fault excuses. */
const LEAST_SUCCESS = 0.999;
/** A run that has fewer exchanges may fail as often as one that has as many. */
const LEAST_EXCHANGES = 1_000;
/** A share of fewer exchanges means nothing: the machine let through next to none between the faults that excuse failures. */
export const LEAST_JUDGED = 200;
/** One failure proves nothing, in any run. */
const MOST_SINGLE_FAILURES = 1;
/**
 * A noria's loop waits for the core after each piece of work, the judge's mostly between two: with 18 busy loops on two cores, a noria
 * whose memory was short was 5.2 times as late as the judge.
 */
export const MOST_TIMES_AS_LATE = 6;
/** How much memory a run may leave in use: for caches that fill, and for sockets in their last seconds. */
const MORE_RSS_BYTES = 64 * 2 ** 20;
const MORE_DESCRIPTORS = 24;
const MORE_EXTERNAL_BYTES = 3 * 2 ** 20;
/** A process that a fault has ended was serving clients: their connections and buffers are no leak. */
const BUSY = { externalBytes: 16 * 2 ** 20, descriptors: 400 };
const MOST_EVENT_LOOP_DELAY_MS = 50;

/** Nothing excuses these. */
const ALWAYS_WRONG: ReadonlySet<string> = new Set(['wrong-bytes', 'expired']);

/** What the judge looks at when a run is over. */
export interface Judged {
  /** The keys that noria derives from the passwords of the instances. */
  readonly keys: readonly string[];
  /** Addresses from which the target was reached. */
  readonly seen: ReadonlySet<string>;
  readonly gates: readonly { violations(intervalMs: number): readonly string[] }[];
  readonly subjects: readonly JudgedSubject[];
}

export interface JudgedSubject {
  readonly name: string;
  readonly output: string;
  readonly crashes: readonly string[];
  readonly stateFolder: string;
  /** All lives of its processes, the last one included. */
  readonly lives: readonly Life[];
}

export interface Measured {
  /** The p99 of the event loop delay of each noria, in ms, without the times in which the noria was stopped. */
  readonly eventLoopDelayMs: readonly number[];
  /** The p99 of the event loop delay of this process, in ms. It runs on the same machine as the norias. */
  readonly ownDelayMs: number;
  /** Exit addresses of all members that ever lived. */
  readonly exits: ReadonlySet<string>;
  /** The pages of the admin API, and all data in the store of a fleet. */
  readonly served: string;
  /** How long after the end of a member's life, by the sandbox's clock, noria connected to it. */
  readonly lateMs: readonly number[];
}

export function violationsOf(judged: Judged, recording: Recording, measured: Measured): readonly string[] {
  return [
    ...wrongExchanges(recording),
    ...judged.gates.flatMap((gate) => gate.violations(INTERVAL_MS)),
    ...strangers(judged, measured.exits),
    ...leakedSecrets(judged, measured.served),
    ...judged.subjects.flatMap(leftBehind),
    ...usedAfterEnd(measured),
    ...slowEventLoops(judged, measured),
    ...judged.subjects.flatMap(({ crashes }) => crashes),
  ];
}

function wrongExchanges(recording: Recording): string[] {
  const always = recording.exchanges
    .filter(({ outcome }) => ALWAYS_WRONG.has(outcome.kind))
    .map(({ kind, outcome }) => `${kind}: ${JSON.stringify(outcome)}`);
  const unexcused = recording.unexcused();
  always.push(...recording.brokenPromises());
  const late = unexcused
    .filter(({ outcome }) => outcome.kind === 'late')
    .map(({ kind, beganAt }) => `${kind} at ${Math.round(beganAt)} ms: no answer within the deadline`);
  const mayFail = Math.max(
    Math.floor((1 - LEAST_SUCCESS) * Math.max(LEAST_EXCHANGES, recording.promised) + 1e-9),
    recording.surprises,
  );
  if (recording.promised < LEAST_JUDGED || unexcused.length <= mayFail + MOST_SINGLE_FAILURES)
    return [...always, ...late];
  const success = 1 - unexcused.length / Math.max(1, recording.promised);
  const causes = Map.groupBy(unexcused, ({ outcome }) =>
    outcome.kind === 'ok' ? '' : `${outcome.kind}: ${outcome.detail}`,
  );
  const list = [...causes].map(([cause, { length }]) => `${length} × ${cause}`).join('; ');
  const share = (success * 100).toFixed(2);
  return [...always, ...late, `${share} % of ${recording.promised} promised exchanges succeeded: ${list}`];
}

/** Returns the addresses that reached the target and are no exit of a member. */
function strangers({ seen }: Judged, exits: ReadonlySet<string>): string[] {
  return [...seen]
    .filter((address) => !exits.has(address))
    .map((address) => `the target was reached from ${address}, which is no member`);
}

function leakedSecrets({ keys, subjects }: Judged, served: string): string[] {
  const outputs = [
    ['the admin API, or the store,', served],
    ...subjects.flatMap(({ name, output, stateFolder }) => [
      [`the output of ${name}`, output],
      [`the state of ${name}`, contents(stateFolder)],
    ]),
  ];
  return [...Object.values(SECRETS), ...keys].flatMap((secret) =>
    outputs
      .filter(([, text]) => text?.includes(secret))
      .map(([where]) => `${where} contains a secret (${secret.slice(0, 4)}…)`),
  );
}

function contents(folder: string): string {
  return readdirSync(folder)
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
    .map((path) => readFileSync(path, 'latin1'))
    .join('\n');
}

function leftBehind({ name, lives }: JudgedSubject): string[] {
  const mib = (bytes: number) => Math.round(bytes / 2 ** 20);
  return lives.flatMap(({ first, last, isCut }, index) => {
    const what = `${name}, in life ${index + 1} of ${lives.length},`;
    const moreRss = last.rssBytes - first.rssBytes;
    const moreExternal = last.externalBytes - first.externalBytes;
    const moreDescriptors = last.descriptors - first.descriptors;
    const mostExternal = isCut ? BUSY.externalBytes : MORE_EXTERNAL_BYTES;
    const mostDescriptors = isCut ? BUSY.descriptors : MORE_DESCRIPTORS;
    return [
      ...(moreRss > MORE_RSS_BYTES && !isCut
        ? [`${what} kept ${mib(moreRss)} MiB more than at its start (${mib(first.rssBytes)} MiB)`]
        : []),
      ...(moreExternal > mostExternal
        ? [
            `${what} kept ${mib(moreExternal)} MiB of buffers more than at its start (${mib(first.externalBytes)} MiB)`,
          ]
        : []),
      ...(moreDescriptors > mostDescriptors
        ? [`${what} kept ${moreDescriptors} descriptors more than at its start (${first.descriptors})`]
        : []),
    ];
  });
}

/** The machine delays noria's connections as long as the judge. */
function usedAfterEnd({ lateMs, ownDelayMs }: Measured): string[] {
  const late = lateMs.filter((ms) => ms > ownDelayMs);
  if (late.length === 0) return [];
  const most = Math.round(Math.max(...late));
  return [`noria connected ${late.length} times to a member after its end, up to ${most} ms later`];
}

/** A busy machine delays the judge as well: its delay is subtracted. */
function slowEventLoops({ subjects }: Judged, { eventLoopDelayMs, ownDelayMs }: Measured): string[] {
  const most = Math.max(MOST_EVENT_LOOP_DELAY_MS + ownDelayMs, MOST_TIMES_AS_LATE * ownDelayMs);
  return subjects.flatMap(({ name }, index) => {
    const delay = eventLoopDelayMs[index] ?? 0;
    const rounded = [delay, most].map(Math.round);
    return delay <= most
      ? []
      : [`the event loop of ${name} was late by ${rounded[0]} ms (p99), above ${rounded[1]} ms`];
  });
}
