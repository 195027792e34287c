/**
 * Answers the extraction links of `LINK_VENDORS` at `/links/NAME`. Each link has its own proxies and its own pace, and
 * can be set to give no proxies (see `LINK_CONDITIONS`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../core/clock.ts';
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { NoriaError } from '../../core/faults.ts';
import { localTime, RateLimiter } from '../instance.ts';
import type { InstanceMembers, RunningMember } from '../members.ts';
import { LOCATIONS } from '../operations.ts';
import type { CommonSettings } from '../settings.ts';
import { htmlPage, readBody, send } from '../web-server.ts';
import { LINK_VENDORS, type LinkRefusal, type LinkVendor } from './vendors.ts';

/**
 * How a link answers. `ok`: with proxies; `denied`: the customer may not get proxies; `empty`: there are no proxies at
 * the moment.
 */
export const LINK_CONDITIONS = ['ok', 'denied', 'empty'] as const;
export type LinkCondition = (typeof LINK_CONDITIONS)[number];

export interface SandboxLink {
  readonly name: string;
  readonly url: string;
  readonly authorization?: string;
  readonly body?: string;
  readonly paceMs: number;
  readonly condition: LinkCondition;
  readonly calls: number;
  readonly paceBreaks: number;
}

interface OpenLink {
  readonly vendor: LinkVendor;
  readonly members: InstanceMembers;
  readonly limiter: RateLimiter;
  condition: LinkCondition;
  calls: number;
  paceBreaks: number;
}

const MAX_COUNT = 200;
const MAX_BODY_BYTES = 65_536;
const MAINLAND = LOCATIONS.filter(({ region }) => region === 'mainland');

export class LinkServer {
  readonly #clock: Clock;
  readonly #settings: Pick<CommonSettings, 'paceMs' | 'lifetimeMs'>;
  readonly #links: ReadonlyMap<string, OpenLink>;

  /** @param settings - replace the pace and the lifetimes of all vendors. */
  constructor(
    clock: Clock,
    settings: Pick<CommonSettings, 'paceMs' | 'lifetimeMs'>,
    membersOf: (vendor: LinkVendor) => InstanceMembers,
  ) {
    this.#clock = clock;
    this.#settings = settings;
    this.#links = new Map(
      LINK_VENDORS.map((vendor) => [
        vendor.name,
        {
          vendor,
          members: membersOf(vendor),
          limiter: new RateLimiter({ calls: 1, withinMs: settings.paceMs ?? vendor.paceMs }, clock),
          condition: 'ok',
          calls: 0,
          paceBreaks: 0,
        },
      ]),
    );
  }

  get members(): readonly RunningMember[] {
    return [...this.#links.values()].flatMap(({ members }) => members.alive);
  }

  list(base: string): SandboxLink[] {
    return [...this.#links.values()].map(({ vendor, condition, calls, paceBreaks }) => {
      const { name, keys, query, authorization, body, paceMs } = vendor;
      const params = [...Object.entries(keys).map(([key, value]) => `${key}=${value}`), query];
      const text = params.filter((part) => part !== '').join('&');
      return {
        name,
        url: `${base}/links/${name}${text === '' ? '' : `?${text}`}`,
        ...(authorization === undefined ? {} : { authorization }),
        ...(body === undefined ? {} : { body }),
        paceMs: this.#settings.paceMs ?? paceMs,
        condition,
        calls,
        paceBreaks,
      };
    });
  }

  setCondition(name: string, condition: LinkCondition): void {
    const link = this.#links.get(name);
    if (link === undefined) throw new NoriaError('not-found', `no link ${name}`);
    link.condition = condition;
  }

  async answer(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    const link = this.#links.get(name);
    if (link === undefined) return send(response, 404, { type: 'text/html', body: htmlPage(404) });
    const { vendor } = link;
    const body = await readBody(request, MAX_BODY_BYTES);
    const params = new URL(request.url ?? '', 'http://vendor.example').searchParams;
    const refusal = this.#refusal(link, request, params);
    const drawn = refusal === undefined ? await this.#draw(link, countOf(vendor, params, body)) : [];
    const why = refusal ?? (drawn.length === 0 ? 'empty' : undefined);
    const type = vendor.answer === undefined ? 'text/plain' : 'application/json';
    send(response, 200, {
      type: `${type}; charset=utf-8`,
      body: why === undefined ? listAnswer(vendor, drawn) : refusalAnswer(vendor, why),
    });
  }

  #refusal(link: OpenLink, request: IncomingMessage, params: URLSearchParams): LinkRefusal | undefined {
    const { vendor, condition, limiter } = link;
    link.calls += 1;
    if (!limiter.admit()) {
      link.paceBreaks += 1;
      return 'too-fast';
    }
    const { keys, authorization, body } = vendor;
    const hasKeys = Object.entries(keys).every(([name, value]) => params.get(name) === value);
    const isMethodRight = request.method === (body === undefined ? 'GET' : 'POST');
    const isAuthorised = authorization === undefined || request.headers.authorization === authorization;
    if (!hasKeys || !isMethodRight || !isAuthorised) return 'denied';
    return condition === 'ok' ? undefined : condition;
  }

  async #draw({ vendor, members }: OpenLink, count: number): Promise<Values[]> {
    const { lifetimeMs = vendor.lifeMs } = this.#settings;
    const drawn = await members.draw({
      count,
      newAllowed: count,
      mayRepeat: () => true,
      kinds: [{ protocol: 'http', label: 'http' }],
      locations: MAINLAND,
      reverse: false,
      minRemainingMs: 0,
      lifeMs: typeof lifetimeMs === 'number' ? [lifetimeMs, lifetimeMs] : lifetimeMs,
      order: 'longest',
      levels: [1],
      checkedMinutes: [1],
      responseSeconds: [1],
      minAliveHours: 0,
    });
    return drawn.map((member) => proxyOf(member, this.#clock.now()));
  }
}

function countOf({ countName }: LinkVendor, params: URLSearchParams, body: string): number {
  const inBody = new RegExp(`"${countName}":\\s*"?(\\d+)`).exec(body)?.[1];
  const count = Number(params.get(countName) ?? inBody ?? 1);
  return Number.isInteger(count) ? Math.min(Math.max(count, 1), MAX_COUNT) : 1;
}

type Values = Readonly<Record<string, string | number>>;

function listAnswer({ entry, answer }: LinkVendor, proxies: readonly Values[]): string {
  const entries = proxies.map((proxy) => fill(entry, proxy));
  if (answer === undefined) return entries.join('\r\n');
  return fill(answer, { entryCount: entries.length, entries: entries.join(',') });
}

function refusalAnswer({ refusal, refusals }: LinkVendor, why: LinkRefusal): string {
  const [code, msg] = refusals[why];
  return fill(refusal, { code, msg });
}

function fill(template: string, values: Values): string {
  return template.replaceAll(/\{(\w+)\}/g, (_all, name: string) => {
    const value = values[name];
    if (value === undefined) throw new TypeError(`no value for {${name}} in ${template}`);
    return String(value);
  });
}

function proxyOf(member: RunningMember, now: number): Values {
  const { host, port, exit, remainingMs, traits, login } = member;
  const [city = '', carrier = ''] = traits.location.adr.split(' ');
  const startedAt = now - (member.onlineMs - traits.onlineMs);
  const endsAt = now + remainingMs;
  return {
    ip: host,
    port,
    exit: exit.address,
    city,
    carrier,
    secondsLeft: Math.floor(remainingMs / SECOND_MS),
    startedAt: chinaTime(startedAt),
    endsAt: chinaTime(endsAt),
    endsAtSeconds: Math.floor(endsAt / SECOND_MS),
    minutes: Math.round((endsAt - startedAt) / MINUTE_MS),
    username: login?.username ?? '',
    password: login?.password ?? '',
  };
}

function chinaTime(epochMs: number): string {
  return localTime(epochMs).replace('T', ' ');
}
