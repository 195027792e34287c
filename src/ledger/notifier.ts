/**
 * Tells an operator about changes with POST requests: once when a condition begins and once when it ends. Owns the requests
 * in progress and their retries.
 */
import http from 'node:http';
import https from 'node:https';
import { type Clock, pause } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import type { EventBus, NOTICE_EVENTS } from '../core/events.ts';
import { describeError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { maskSecrets, type Secret } from '../core/secret.ts';

type NoticeEvent = (typeof NOTICE_EVENTS)[number];

interface NotifierOptions {
  readonly bus: EventBus;
  readonly clock: Clock;
  readonly log: Log;
  /** `body`: a template, in which `{event}`, `{state}` and the other fields of a notice are replaced. */
  readonly settings: () => readonly {
    readonly url: Secret;
    readonly on: readonly NoticeEvent[];
    readonly body?: string | undefined;
  }[];
  /** The name of this noria in the notices. */
  readonly instance: string;
  readonly siteOf: (host: string) => string;
  readonly isBudgetUsed: (source: string) => boolean;
}

interface Condition {
  readonly event: NoticeEvent;
  active: boolean;
  words: { readonly reason: string; readonly advice: string };
  /** What was last told. */
  told: boolean;
  /** No notice before this monotonic moment. */
  quietUntil: number;
  timer: Disposable | undefined;
}

const TIMEOUT_MS = 10 * SECOND_MS;
/** The waits before the retries. */
const RETRY_MS = [2 * SECOND_MS, 15 * SECOND_MS, 60 * SECOND_MS];
/** The start is no news: noria tells nothing before this time has passed. */
const START_MS = 10 * SECOND_MS;
/** Something that comes and goes is told at most this often. */
const SPACING_MS = 60 * SECOND_MS;
/** Requests to an endpoint that does not answer; further notices are dropped and logged. */
const MAX_SENDING = 100;
const MAX_CONDITIONS = 1_000;

export class Notifier {
  readonly #options: NotifierOptions;
  readonly #subscriptions: readonly Disposable[];
  readonly #conditions = new Map<string, Condition>();
  readonly #closing = new AbortController();
  readonly #sending = new Set<Promise<void>>();
  readonly #startedAt: number;

  constructor(options: NotifierOptions) {
    this.#options = options;
    const { bus, clock, isBudgetUsed, siteOf } = options;
    this.#startedAt = clock.monotonic();
    this.#subscriptions = [
      bus.on('readiness.changed', ({ ready, reason, advice = '', shuttingDown }) => {
        if (!shuttingDown) this.#set('not-ready', '', !ready, { reason, advice });
      }),
      bus.on('source.moved', ({ source, to, reason, advice = '' }) => {
        const words = { reason: `${source}: ${reason}`, advice };
        this.#set('source-halted', source, to === 'halted', words);
        this.#set('budget-used', source, to === 'paused' && isBudgetUsed(source), words);
      }),
      bus.on('request.ended', ({ target, code, outcome }) => {
        const banned = code === 'site-banned';
        if (target === null || (!banned && (outcome === 'failed' || this.#conditions.size === 0))) return;
        const site = siteOf(hostOf(target));
        const reason = banned ? `every exit is banned for ${site}` : `${site} answers again`;
        const advice = banned
          ? 'noria sites shows the bans; raise drawsForBans, or lower the rate of requests.'
          : '';
        this.#set('site-banned', site, banned, { reason, advice });
      }),
    ];
  }

  async close(): Promise<void> {
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    for (const { timer } of this.#conditions.values()) timer?.[Symbol.dispose]();
    this.#closing.abort();
    await Promise.all(this.#sending);
  }

  #set(event: NoticeEvent, subject: string, active: boolean, words: Condition['words']): void {
    const key = `${event} ${subject}`;
    let condition = this.#conditions.get(key);
    if (condition === undefined) {
      if (!active || this.#conditions.size >= MAX_CONDITIONS) return;
      const quietUntil = this.#startedAt + START_MS;
      condition = { event, active, words, told: false, quietUntil, timer: undefined };
      this.#conditions.set(key, condition);
    }
    condition.active = active;
    if (active !== condition.told) condition.words = words;
    this.#tell(key, condition);
  }

  #tell(key: string, condition: Condition): void {
    const { clock } = this.#options;
    const waitMs = condition.quietUntil - clock.monotonic();
    if (waitMs > 0) {
      condition.timer ??= clock.after(waitMs, () => {
        condition.timer = undefined;
        this.#tell(key, condition);
      });
      return;
    }
    if (condition.active === condition.told) {
      if (!condition.active) this.#conditions.delete(key);
      return;
    }
    condition.told = condition.active;
    condition.quietUntil = clock.monotonic() + SPACING_MS;
    this.#notify(condition);
  }

  #notify({ event, active, words: { reason, advice } }: Condition): void {
    const { clock, settings, instance, log } = this.#options;
    const at = new Date(clock.now()).toISOString();
    const notice = { event, state: active ? 'begun' : 'ended', at, instance, reason, advice };
    for (const { url, on, body } of settings()) {
      if (!on.includes(event)) continue;
      if (this.#sending.size >= MAX_SENDING) {
        log.warn({ notice: event }, 'notice dropped: its endpoint does not answer');
        continue;
      }
      const sending = this.#send(url, fill(body, notice), event).finally(() => this.#sending.delete(sending));
      this.#sending.add(sending);
    }
  }

  async #send(url: Secret, { type, text }: ReturnType<typeof fill>, event: NoticeEvent): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#closing;
    for (let tries = 0; !signal.aborted; tries += 1) {
      try {
        const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
        const status = await post(url.reveal(), type, text, limit);
        if (status < 300) return;
        throw new Error(`status ${status}`);
      } catch (cause) {
        const error = maskSecrets(describeError(cause), [url]);
        const waitMs = RETRY_MS[tries];
        if (waitMs === undefined || signal.aborted) {
          log.warn({ notice: event, error }, 'notice not delivered');
          return;
        }
        await pause(clock, waitMs, signal);
      }
    }
  }
}

/** @returns the status of the answer, after its end. */
function post(url: string, type: string, text: string, signal: AbortSignal): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const { request } = url.startsWith('https:') ? https : http;
  request(url, { method: 'POST', headers: { 'content-type': type }, signal }, (answer) => {
    const { statusCode = 0 } = answer;
    answer.on('error', reject).on('end', () => resolve(statusCode));
    answer.resume();
  })
    .on('error', reject)
    .end(text);
  return promise;
}

/** Fills a template. In a JSON template, the values are escaped as parts of JSON strings. */
function fill(template: string | undefined, notice: Readonly<Record<string, string>>) {
  if (template === undefined) return { type: 'application/json', text: JSON.stringify(notice) };
  const isJson = /^\s*[[{]/.test(template);
  const text = template.replaceAll(/\{(event|state|at|instance|reason|advice)\}/g, (_tag, name: string) => {
    const value = notice[name] ?? '';
    return isJson ? JSON.stringify(value).slice(1, -1) : value;
  });
  return { type: isJson ? 'application/json' : 'text/plain; charset=utf-8', text };
}

function hostOf(target: string): string {
  return target.slice(0, target.lastIndexOf(':')).replace(/^\[|\]$/g, '');
}
