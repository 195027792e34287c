/** Records what happened in a run: the exchanges, the faults, and which exchanges each fault affected. */
import type { ClientKind, Outcome } from './clients.ts';
import type { Fault } from './faults/fault.ts';

/** Moments are ms since the start of the run. */
export interface Exchange {
  readonly kind: ClientKind;
  readonly subject: string;
  readonly beganAt: number;
  readonly endedAt: number;
  readonly outcome: Outcome;
}

export interface PlayedFault {
  readonly fault: Fault;
  readonly beganAt: number;
  endedAt: number;
}

export interface FaultSummary {
  readonly name: string;
  readonly promise: Fault['promise'];
  readonly times: number;
  /**
   * The number of exchanges that failed during the fault or shortly after it. Overlapping `broken` faults count the
   * same exchanges.
   */
  readonly affected: number;
  readonly exchanges: number;
  /** The maximum time from the end of the fault to the start of the last exchange that failed. */
  readonly recoveryMs: number;
}

/** For this time after a fault, failures may still be caused by it. */
export const AFTERMATH_MS = 2_000;

/** Half of the members misbehave, and an exchange has three attempts. */
const SURPRISED_SHARE = 1 / 8;

export class Recording {
  readonly exchanges: Exchange[] = [];
  readonly faults: PlayedFault[] = [];

  /** Returns the failed exchanges that no fault excuses, because all faults at that time promise service. */
  unexcused(): readonly Exchange[] {
    return this.exchanges.filter((exchange) => exchange.outcome.kind !== 'ok' && !this.#isExcused(exchange));
  }

  /**
   * Describes each failed exchange that no fault excuses: when it failed, through which noria, during which faults, and
   * how.
   */
  failures(): readonly string[] {
    return this.unexcused().map((exchange) => {
      const { kind, subject, beganAt, outcome } = exchange;
      const during = this.faults.filter((one) => overlaps(one, exchange)).map(({ fault }) => fault.name);
      const how = outcome.kind === 'ok' ? '' : `${outcome.kind}: ${outcome.detail}`;
      const at = (beganAt / 1_000).toFixed(1);
      return `${kind} through ${subject} at ${at} s (${during.join(', ') || 'no fault'}): ${how}`;
    });
  }

  /** What sessions, bans and routing options promise, and noria did not do. A noria that was just killed may have forgotten it. */
  brokenPromises(): readonly string[] {
    return this.unexcused().flatMap(({ kind, outcome }) =>
      outcome.kind === 'broken-promise' ? [`${kind}: ${outcome.detail}`] : [],
    );
  }

  /** The number of exchanges that had to succeed. */
  get promised(): number {
    return this.exchanges.filter((exchange) => !this.#isExcused(exchange)).length;
  }

  /**
   * The number of exchanges that may fail while the norias learn which members misbehave, however few exchanges there are: one for each
   * noria, and more if a busy machine has many open at once, none of which can learn from another.
   */
  get surprises(): number {
    const norias = new Set(this.exchanges.map(({ subject }) => subject)).size;
    let count = 0;
    for (const played of this.faults) {
      if (played.fault.isLearnt !== true || played.fault.promise !== 'served') continue;
      const open = this.exchanges.filter(
        (one) => one.beganAt <= played.beganAt && one.endedAt >= played.beganAt,
      );
      count += Math.max(norias, Math.floor(open.length * SURPRISED_SHARE));
    }
    return count;
  }

  summaries(): readonly FaultSummary[] {
    const byName = Map.groupBy(this.faults, ({ fault }) => fault.name);
    return [...byName].map(([name, played]) => {
      const promise = played[0]?.fault.promise ?? 'served';
      const during = played.map((one) => this.exchanges.filter((exchange) => overlaps(one, exchange)));
      // A failure during a fault that promises service is attributed to this fault, unless a `broken` fault was active at the
      // same time.
      const failed = during.map((list) =>
        list.filter(
          (exchange) =>
            exchange.outcome.kind !== 'ok' && (promise === 'broken' || !this.#isExcused(exchange)),
        ),
      );
      const recoveries = played.map((one, index) =>
        Math.max(0, ...(failed[index] ?? []).map(({ beganAt }) => beganAt - one.endedAt)),
      );
      return {
        name,
        promise,
        times: played.length,
        affected: failed.flat().length,
        exchanges: during.flat().length,
        recoveryMs: Math.round(Math.max(...recoveries)),
      };
    });
  }

  #isExcused(exchange: Exchange): boolean {
    return this.faults.some((one) => one.fault.promise === 'broken' && overlaps(one, exchange));
  }
}

function overlaps({ beganAt, endedAt }: PlayedFault, exchange: Exchange): boolean {
  return exchange.beganAt <= endedAt + AFTERMATH_MS && exchange.endedAt >= beganAt;
}
