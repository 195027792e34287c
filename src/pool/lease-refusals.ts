/**
 * Builds the pool's refusals. A refusal lists the sources that could serve the client, what each of these sources does
 * next, and when a retry may succeed.
 */
import { couldServe, filterOf, passesFilter } from './filter.ts';
import type { LeaseRefusal, LeaseRequest, RoutingOptions, SourceForecast } from './lease.ts';
import type { PoolSource } from './member.ts';
import type { Members } from './members.ts';

export class LeaseRefusals {
  readonly #members: Members;
  readonly #forecasts: () => readonly SourceForecast[];

  constructor(members: Members, forecasts: () => readonly SourceForecast[]) {
    this.#members = members;
    this.#forecasts = forecasts;
  }

  poolEmpty(reason: string, routing: RoutingOptions): LeaseRefusal {
    const sources: LeaseRefusal['sources'][number][] = [];
    let retryAfterMs = Number.POSITIVE_INFINITY;
    for (const { name, state, reason: why, nextDrawMs, nextMemberMs } of this.#forecasts()) {
      const source = this.#members.sources.get(name);
      if (source === undefined || !couldServe(source, routing)) continue;
      if (source.blockedReason !== undefined) {
        sources.push({ name, state: 'paused', reason: source.blockedReason });
        continue;
      }
      sources.push({ name, state, reason: why, ...(nextDrawMs === undefined ? {} : { nextDrawMs }) });
      retryAfterMs = Math.min(retryAfterMs, nextMemberMs ?? Number.POSITIVE_INFINITY);
    }
    const retry = retryAfterMs === Number.POSITIVE_INFINITY ? {} : { retryAfterMs };
    return { code: 'pool-empty', reason, sources, ...retry };
  }

  /**
   * Returns a function that refuses a request if no member can become free within the waiting time of the request. The
   * function uses the forecasts of the sources at monotonic `now`.
   */
  judge(now: number): (request: LeaseRequest, waitMs: number) => LeaseRefusal | undefined {
    const forecasts = new Map(this.#forecasts().map((forecast) => [forecast.name, forecast]));
    return (request, waitMs) => {
      const able = [...this.#members.sources.values()].filter((source) =>
        couldServe(source, request.routing),
      );
      const mayServe = (source: PoolSource) => {
        if (source.blockedReason !== undefined) return false;
        const { suspendedMs = 0 } = forecasts.get(source.name) ?? {};
        return suspendedMs < waitMs || hasMemberFor(request, source, now);
      };
      if (able.length === 0 || able.some(mayServe)) return undefined;
      return this.poolEmpty(
        'No source that can serve this request will have a member soon.',
        request.routing,
      );
    };
  }
}

/** Whether the source has a member that fits the request and may become free. */
function hasMemberFor(
  { routing, avoid, targetHost }: LeaseRequest,
  source: PoolSource,
  now: number,
): boolean {
  const filter = filterOf(routing);
  const minEndsAt = now + (routing.minLifeMs ?? 0);
  for (const member of source.members) {
    if (member.phase.name === 'draining' || member.endsAt < minEndsAt || !passesFilter(member, filter))
      continue;
    if (!avoid.includes(member.id) && member.bans?.has(targetHost) !== true) return true;
  }
  return false;
}
