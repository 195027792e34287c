/** Norias of one fleet on a real store and one sandbox. Tests check the pace with the sandbox's record of calls. */
import { expect } from 'vitest';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { getThrough } from './exit-through.ts';
import { type Noria, openTestSandbox, sourceLine, startNoria } from './noria.ts';
import { openStore, type TestStore } from './store-server.ts';

const INTERVAL_MS = 1_000;

/** Attempts may take long and are not hedged, because a busy machine must not change the exit of a session. */
export const PATIENT_DIAL =
  'dial: { waitForMember: 60s, deadline: 60s, attemptTimeout: 60s, hedgeAfter: off }';

export interface FleetStage {
  readonly sandbox: Sandbox;
  readonly store: TestStore;
  start(replica: string, options?: FleetNoriaOptions): Promise<Noria>;
}

export interface FleetNoriaOptions {
  /** The name of the replica's source. Default `city`. */
  readonly source?: string;
  /** The port of a proxy in front of the store. Default: the store's own. */
  readonly storePort?: number;
}

/**
 * @param size - the number of members that the fleet wants.
 * @param more - further sections of every configuration.
 */
export async function openFleetStage(size: number, more: readonly string[]): Promise<FleetStage> {
  const store = await openStore({ args: ['--appendonly', 'yes'] });
  const sandbox = await openTestSandbox({
    members: size * 4,
    lifetimeMs: 600_000,
    instances: [{ product: 'shared' }],
  });
  const keys = `interval: ${INTERVAL_MS}ms, size: ${size}, params: { count: 2, pro: 1 }`;
  return {
    sandbox,
    store,
    start: (replica, { source = 'city', storePort = store.port } = {}) =>
      startNoria({
        sources: [sourceLine(sandbox, source, 'shared', keys)],
        more: [`fleet: { url: "redis://127.0.0.1:${storePort}", replica: ${replica} }`, ...more].join('\n'),
      }),
  };
}

export function idsOf({ control }: Noria): readonly string[] {
  return control
    .members()
    .map(({ id }) => id)
    .sort();
}

/** Throws if two calls were closer than the interval. */
export function expectPace(sandbox: Sandbox): void {
  const arrivals = sandbox.calls().map(({ arrivedAt }) => arrivedAt);
  const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? 0));
  expect(gaps.filter((gap) => gap < INTERVAL_MS)).toEqual([]);
  expect([sandbox.stats().paceBreaks, sandbox.stats().codes['12002']]).toEqual([0, undefined]);
}

/** Returns the exit that the target sees, or the failure. @param session - of the client; absent: none. */
export async function exitOf(noria: Noria, { targetUrl }: Sandbox, session?: string): Promise<string> {
  const credentials = session === undefined ? undefined : `me-session-${session}:x`;
  const answer = await getThrough(noria.proxy, `${targetUrl}/ip`, credentials).catch(String);
  return answer.replace(/^200 /, '');
}
