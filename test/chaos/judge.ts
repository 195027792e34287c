/** The invariants of a run. Each violation is one sentence with the deciding numbers. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Recording } from './record.ts';
import { INTERVAL_MS, SECRETS } from './stage.ts';
import type { Footprint } from './subject.ts';

/** The minimum share of successes among the exchanges that no fault excuses. */
const LEAST_SUCCESS = 0.999;
/** One failure proves nothing: in a short run it alone would be more than the share allows. */
const MOST_SINGLE_FAILURES = 1;
/** How much memory a run may leave in use: for caches that fill, and for sockets in their last seconds. */
const MORE_RSS_BYTES = 64 * 2 ** 20;
const MORE_DESCRIPTORS = 24;
const MOST_EVENT_LOOP_DELAY_MS = 50;

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
}

export interface Measured {
  readonly before: readonly Footprint[];
  readonly after: readonly Footprint[];
  /** The p99 of the event loop delay of each noria, in ms, without the times in which the noria was stopped. */
  readonly eventLoopDelayMs: readonly number[];
  /** The p99 of the event loop delay of this process, in ms. It runs on the same machine as the norias. */
  readonly ownDelayMs: number;
  /** Exit addresses of all members that ever lived. */
  readonly exits: ReadonlySet<string>;
  /** The pages of the admin API, and all data in the store of a fleet. */
  readonly served: string;
}

export function violationsOf(judged: Judged, recording: Recording, measured: Measured): readonly string[] {
  return [
    ...wrongExchanges(recording),
    ...judged.gates.flatMap((gate) => gate.violations(INTERVAL_MS)),
    ...strangers(judged, measured.exits),
    ...leakedSecrets(judged, measured.served),
    ...leftBehind(judged, measured),
    ...slowEventLoops(judged, measured),
    ...judged.subjects.flatMap(({ crashes }) => crashes),
  ];
}

function wrongExchanges(recording: Recording): string[] {
  const always = recording.exchanges
    .filter(({ outcome }) => outcome.kind === 'wrong-bytes' || outcome.kind === 'expired')
    .map(({ kind, outcome }) => `${kind}: ${JSON.stringify(outcome)}`);
  const unexcused = recording.unexcused();
  const late = unexcused
    .filter(({ outcome }) => outcome.kind === 'late')
    .map(({ kind, beganAt }) => `${kind} at ${Math.round(beganAt)} ms: no answer within the deadline`);
  const success = 1 - unexcused.length / Math.max(1, recording.promised);
  if (success >= LEAST_SUCCESS || unexcused.length <= MOST_SINGLE_FAILURES) return [...always, ...late];
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

function leftBehind({ subjects }: Judged, { before, after }: Measured): string[] {
  return subjects.flatMap(({ name }, index) => {
    const [first, last] = [before[index], after[index]];
    if (first === undefined || last === undefined) return [];
    const moreBytes = last.rssBytes - first.rssBytes;
    const moreDescriptors = last.descriptors - first.descriptors;
    const mib = (bytes: number) => Math.round(bytes / 2 ** 20);
    return [
      ...(moreBytes > MORE_RSS_BYTES
        ? [`${name} kept ${mib(moreBytes)} MiB more than at the start (${mib(first.rssBytes)} MiB)`]
        : []),
      ...(moreDescriptors > MORE_DESCRIPTORS
        ? [`${name} kept ${moreDescriptors} descriptors more than at the start (${first.descriptors})`]
        : []),
    ];
  });
}

/** A busy machine delays the judge as well, so only the delay that noria adds counts. */
function slowEventLoops({ subjects }: Judged, { eventLoopDelayMs, ownDelayMs }: Measured): string[] {
  const most = Math.max(MOST_EVENT_LOOP_DELAY_MS, 2 * ownDelayMs);
  return subjects.flatMap(({ name }, index) => {
    const delay = eventLoopDelayMs[index] ?? 0;
    const rounded = [delay, most].map(Math.round);
    return delay <= most
      ? []
      : [`the event loop of ${name} was late by ${rounded[0]} ms (p99), above ${rounded[1]} ms`];
  });
}
