/** A replica's access to a store that answers what a test says, on a manual clock. */
import { onTestFinished } from 'vitest';
import type { StoreClient } from '../../../src/fleet/redis/connection.ts';
import { FleetStore } from '../../../src/fleet/redis/store.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { type Answer, openScriptedStore } from './scripted-store.ts';

export const STORE_AT = 1_900_000_000_000;

interface Opening {
  readonly rememberedEpoch?: string;
  readonly join?: (client: StoreClient) => Promise<void>;
  /** The answer to a script, without the time and the epoch of the store; an error, or another answer as a whole. */
  readonly answer?: (command: readonly string[]) => Answer | { readonly whole: Answer };
}

export async function openAccess({ answer = () => [], ...options }: Opening = {}) {
  const clock = ManualClock.dayOld();
  const state = { now: STORE_AT, epoch: 'e1', floorAt: 0, openAt: 0, tripMs: 0, suspendedMs: 0 };
  const store = await openScriptedStore((command) => {
    clock.advance(state.tripMs);
    const reply = answer(command);
    if (reply instanceof Error) return reply;
    if (typeof reply === 'object' && reply !== null && 'whole' in reply) return reply.whole;
    const { now, epoch, floorAt, openAt } = state;
    return [
      String(now),
      epoch,
      String(floorAt),
      String(openAt),
      ...(Array.isArray(reply) ? reply : [reply ?? []].flat()),
    ];
  });
  const startedAt = clock.monotonic();
  const timings: (readonly [string, number])[] = [];
  const access = new FleetStore({
    ...{ address: store.address, name: 'crawl', clock, random: () => 0 },
    timekeeper: {
      now: () => ({ wallAt: 0, boot: '', elapsedMs: 0 }),
      stopwatch: () => () => clock.monotonic() - startedAt + state.suspendedMs,
    },
    onTiming: (operation, ms) => timings.push([operation, ms]),
    ...options,
  });
  onTestFinished(() => access.close());
  access.connection.start();
  await access.connection.tried;
  return { clock, state, store, access, timings };
}

/** Scripts by a part of their text. */
const SCRIPTS = {
  beat: 'local name, process, record, clients',
  leave: "redis.call('DEL', prefix .. ':moved:' .. ARGV[5])",

  publish: "'XADD', KEYS[2] .. ':log'",
  begin: "'snapshot', 'pages', 'covers', 'number', 'version'",
  page: "redis.call('HMGET', KEYS[2] .. ':pages', ARGV[5], ARGV[6])",
  entries: "'XRANGE', KEYS[2]",
  uses: "'HSCAN', KEYS[2]",
  savePage: 'unpack(ARGV, 5))\nreturn answer()',
  save: "'HKEYS', KEYS[2] .. ':pages'",
  bind: "local found = redis.call('HMGET', key, 'text'",
  end: 'tell(fields, ARGV[6], ARGV[7], version)',
  hold: 'return answer(sessions)',
  news: "'begun', '1'",
} as const;
export type ScriptName = keyof typeof SCRIPTS;

export function scriptIn(text: string): ScriptName {
  const found = (Object.keys(SCRIPTS) as ScriptName[]).find((name) => text.includes(SCRIPTS[name]));
  if (found === undefined) throw new Error(`no script has this text: ${text}`);
  return found;
}
