/**
 * The extraction service of a simulation: gives members with lifetimes, has its troubles, and knows the truth about
 * both, so that what noria does can be held against it.
 */
import { type Clock, pause } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Random } from '../../core/random.ts';
import type { DrawAnswer, DrawnEntry } from '../../service/answer.ts';
import { SUCCESS } from '../../service/codes.ts';
import type { ExtractCall } from '../../service/request.ts';
import type { Extractor } from '../options.ts';
import type { Life } from './life.ts';
import { type SimulatedWorld, type TroubleKind, within } from './world.ts';

/** A member as the service knows it; moments in the time of the world. */
export interface TrueMember {
  readonly endsAt: number;
  readonly dead: boolean;
  used: boolean;
}

export interface SimulatedServiceOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly world: SimulatedWorld;
}

/** What a call is answered with while something is wrong; the outage and the block have no code. */
const NO_CODE: Partial<Record<TroubleKind, NoriaError>> = {
  outage: new NoriaError('service-transport', 'the simulated service refused the connection'),
  blocked: new NoriaError('service-blocked', 'the simulated service answered with a web page'),
};
const PARAMS_WRONG = '12003';

export class SimulatedService {
  readonly #options: SimulatedServiceOptions;
  readonly #members = new Map<string, TrueMember>();
  readonly #alive = new Map<string, string[]>();
  #made = 0;
  /** Calls by code, `transport` where none came. */
  readonly calls = new Map<string, number>();
  /** Members given, each counted once; and of those that have ended, the used and the never used. */
  given = 0;
  used = 0;
  wasted = 0;

  constructor(options: SimulatedServiceOptions) {
    this.#options = options;
  }

  /** The service as one life of noria reaches it. */
  forLife(life: Life): Extractor {
    return { extract: (call, { signal }) => this.#extract(call, signal, life) };
  }

  /** The truth about a member; undefined: never given, or long gone. */
  member(host: string, port: number): TrueMember | undefined {
    return this.#members.get(`${host}:${port}`);
  }

  /** Counts and forgets those whose life has ended; to be called now and then, and at the end. */
  forgetEnded(): void {
    const now = this.#options.clock.monotonic();
    for (const [key, { endsAt, used }] of this.#members) {
      if (endsAt > now) continue;
      this.#members.delete(key);
      if (used) this.used += 1;
      else this.wasted += 1;
    }
  }

  async #extract(call: ExtractCall, signal: AbortSignal, life: Life): Promise<DrawAnswer> {
    const { clock, random, world } = this.#options;
    const sentAt = life.clock.monotonic();
    const trouble = troubleAt(world, clock.monotonic());
    const tookMs = within(world.callMs, random);
    await pause(life.clock, tookMs, signal);
    if (signal.aborted) throw new NoriaError('shutting-down', 'the call was given up');
    const failure = trouble === undefined ? undefined : NO_CODE[trouble];
    const code = trouble ?? ((call.count ?? 0) > world.pullLimit ? PARAMS_WRONG : SUCCESS);
    this.#count(failure === undefined ? code : 'transport');
    if (failure !== undefined) throw failure;
    const entries = code === SUCCESS ? this.#give(call) : [];
    return { code, message: '', entries, dropped: {}, quota: {}, sentAt, tookMs };
  }

  #give(call: ExtractCall): DrawnEntry[] {
    const { random, world } = this.#options;
    return Array.from({ length: call.count ?? 1 }, () =>
      random() < world.repeatShare ? (this.#again(call) ?? this.#make(call)) : this.#make(call),
    );
  }

  #make(call: ExtractCall): DrawnEntry {
    const { clock, random, world } = this.#options;
    const { timespan } = call.params;
    const lifetimeMs = within(
      world.lifetimeMs(call.product, typeof timespan === 'number' ? timespan : undefined),
      random,
    );
    this.#made += 1;
    this.given += 1;
    const host = `198.51.${Math.floor(this.#made / 250) % 250}.${this.#made % 250}`;
    const port = 10_000 + (this.#made % 50_000);
    const endsAt = clock.monotonic() + lifetimeMs;
    this.#members.set(`${host}:${port}`, { endsAt, dead: random() < world.deadShare, used: false });
    if (world.repeatShare > 0) this.#aliveOf(call).push(`${host}:${port}`);
    return { host, port, lifetimeMs: Math.floor(lifetimeMs) };
  }

  /** One that was given before and still lives. */
  #again(call: ExtractCall): DrawnEntry | undefined {
    const { clock, random } = this.#options;
    const now = clock.monotonic();
    const keys = this.#aliveOf(call).filter((key) => (this.#members.get(key)?.endsAt ?? 0) > now);
    this.#alive.set(call.instance, keys);
    const key = keys[Math.floor(random() * keys.length)];
    const member = key === undefined ? undefined : this.#members.get(key);
    if (key === undefined || member === undefined) return undefined;
    const [host = '', port = ''] = key.split(':');
    return { host, port: Number(port), lifetimeMs: Math.floor(member.endsAt - now) };
  }

  #aliveOf({ instance }: ExtractCall): string[] {
    const keys = this.#alive.get(instance) ?? [];
    this.#alive.set(instance, keys);
    return keys;
  }

  #count(code: string): void {
    this.calls.set(code, (this.calls.get(code) ?? 0) + 1);
  }
}

function troubleAt({ troubles }: SimulatedWorld, at: number): TroubleKind | undefined {
  return troubles.find(({ fromMs, toMs }) => at >= fromMs && at < toMs)?.kind;
}
