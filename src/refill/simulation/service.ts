/** The simulated extraction service. It answers every call, and every member works until it expires. */
import { type Clock, pause } from '../../core/clock.ts';
import { MINUTE_MS } from '../../core/duration.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Random } from '../../core/random.ts';
import type { DrawAnswer } from '../../service/answer.ts';
import type { SupplyConnection } from '../../service/client.ts';
import { SUCCESS } from '../../service/codes.ts';
import type { DrawnEntry } from '../../service/fields.ts';
import type { DrawCall, ServiceAddress } from '../../service/request.ts';
import type { WriteGate } from '../../service/transport.ts';
import type { Extractor } from '../options.ts';

export type Range = readonly [from: number, to: number];

/** The shares of members that never work, that accept a tunnel only after two seconds, and that die after a third of their life. */
export interface SimulatedVendor {
  readonly dead: number;
  readonly slow: number;
  readonly early: number;
  /** The lifetimes of members in ms. Default: those of the product. */
  readonly lifetimeMs?: Range;
}

const SLOW_MS = 2_000;
/** A member that dies early lives for this share of its promised life. */
const EARLY_SHARE = 1 / 3;

interface SimulatedMember {
  readonly isDead: boolean;
  readonly isSlow: boolean;
  readonly expiresAt: number;
  isUsed: boolean;
}

export interface SimulatedServiceOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly connectMs?: Range;
  /** The time in ms from sending a call to its answer. The call arrives at a random moment in between. */
  readonly callMs?: Range;
  readonly lifetimeMs?: (call: DrawCall) => Range;
  readonly vendor?: SimulatedVendor;
}

const PERFECT: SimulatedVendor = { dead: 0, slow: 0, early: 0 };

const CONNECT_MS: Range = [10, 100];
const CALL_MS: Range = [100, 1_200];

export class SimulatedService implements Extractor {
  protected readonly options: Required<SimulatedServiceOptions>;
  readonly #members = new Map<string, SimulatedMember>();
  #created = 0;
  readonly calls = new Map<string, number>();
  /** The numbers of members that the service delivered, that expired after use, and that expired without use. */
  drawn = 0;
  used = 0;
  wasted = 0;

  constructor(options: SimulatedServiceOptions) {
    this.options = {
      connectMs: CONNECT_MS,
      callMs: CALL_MS,
      lifetimeMs: typicalLifetimeMs,
      vendor: PERFECT,
      ...options,
    };
  }

  async connect(_address: ServiceAddress, signal: AbortSignal): Promise<SupplyConnection> {
    const { clock, random, connectMs } = this.options;
    await pause(clock, randomIn(connectMs, random), signal);
    if (signal.aborted) throw cancelled();
    return { extract: (call, { gate }) => this.#exchange(call, gate, signal), close: () => {} };
  }

  member(host: string, port: number): SimulatedMember | undefined {
    const member = this.#members.get(`${host}:${port}`);
    return member !== undefined && member.expiresAt > this.options.clock.monotonic() ? member : undefined;
  }

  /** Returns whether the member accepts a tunnel. If so, marks it as used. */
  accepts(host: string, port: number): boolean {
    const member = this.member(host, port);
    if (member === undefined || member.isDead) return false;
    member.isUsed = true;
    return true;
  }

  delayOf(host: string, port: number): number {
    return this.member(host, port)?.isSlow ? SLOW_MS : 0;
  }

  sweep(): void {
    const now = this.options.clock.monotonic();
    for (const [key, { expiresAt, isUsed }] of this.#members) {
      if (expiresAt > now) continue;
      this.#members.delete(key);
      if (isUsed) this.used += 1;
      else this.wasted += 1;
    }
  }

  async #exchange(call: DrawCall, gate: WriteGate, signal: AbortSignal): Promise<DrawAnswer> {
    const { clock, random, callMs } = this.options;
    gate.beforeWrite();
    const sentAt = clock.monotonic();
    const tookMs = randomIn(callMs, random);
    const requestMs = tookMs * random();
    await pause(clock, requestMs, signal);
    if (signal.aborted) throw cancelled();
    const answer = this.answer(call);
    await pause(clock, tookMs - requestMs, signal);
    if (signal.aborted) throw cancelled();
    gate.answered();
    return { message: '', dropped: {}, quota: {}, sentAt, ...answer };
  }

  protected answer(call: DrawCall): Pick<DrawAnswer, 'code' | 'entries'> {
    this.sweep();
    this.countCall(SUCCESS);
    const entries = Array.from({ length: call.count ?? 1 }, () => this.createMember(call));
    return { code: SUCCESS, entries };
  }

  protected countCall(code: string): void {
    this.calls.set(code, (this.calls.get(code) ?? 0) + 1);
  }

  protected createMember(call: DrawCall): DrawnEntry {
    const { clock, random, vendor } = this.options;
    const lifetimeMs = Math.floor(randomIn(this.options.lifetimeMs(call), random));
    const chance = random();
    const isDead = chance < vendor.dead;
    const isEarly = !isDead && chance < vendor.dead + vendor.early;
    const isSlow = !isDead && !isEarly && chance < vendor.dead + vendor.early + vendor.slow;
    const livesMs = isEarly ? lifetimeMs * EARLY_SHARE : lifetimeMs;
    this.#created += 1;
    this.drawn += 1;
    const host = `198.51.${Math.floor(this.#created / 250) % 250}.${this.#created % 250}`;
    const port = 10_000 + (this.#created % 50_000);
    this.#members.set(`${host}:${port}`, {
      ...{ isDead, isSlow, isUsed: false },
      expiresAt: clock.monotonic() + livesMs,
    });
    return { host, port, lifetimeMs };
  }
}

function cancelled(): NoriaError {
  return new NoriaError('shutting-down', 'the call was cancelled');
}

/** By the product and its `timespan` in minutes, from the specification; where it names no lifetime, a guess. */
export function typicalLifetimeMs({ product, params }: Pick<DrawCall, 'product' | 'params'>): Range {
  const timespan = typeof params['timespan'] === 'number' ? params['timespan'] : 1;
  switch (product) {
    case 'link':
    case 'gateway':
    case 'list':
      return [MINUTE_MS, 5 * MINUTE_MS];
    case 'long-residential':
    case 'residential-socks5':
      return [timespan * MINUTE_MS, 30 * MINUTE_MS];
    case 'short-socks5':
    case 'short-classic':
    case 'short-pure':
      return [Math.max(1, timespan) * MINUTE_MS, 6 * MINUTE_MS];
    case 'shared':
    case 'exclusive':
    case 'free':
      return [Math.max(1, timespan) * MINUTE_MS, 10 * MINUTE_MS];
  }
}

export function randomIn([from, to]: Range, random: Random): number {
  return from + (to - from) * random();
}
