/**
 * Keeps what the dialer has learned from the members of one source: credentials, forward mode, pipelining, latency and
 * opening times.
 */
import { AgedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import { type Login, Secret } from '../core/secret.ts';
import type { ForwardMode } from './contract.ts';
import { ForwardModeMemory } from './forward-mode.ts';
import { type HandshakeSetting, Pipelining } from './pipelining.ts';

export interface SourceSettings {
  /** `auto`: none until members require some, then those of the instance. */
  readonly auth: 'auto' | 'none' | 'instance' | Login;
  readonly instance: string;
  readonly password?: Secret;
  /** The members belong to third parties (the free product). */
  readonly neverInstance: boolean;
  /** Whether the logins of the members are names of one account, so that a refusal concerns the source. */
  readonly oneAccount?: boolean;
  /**
   * What to try first. `absolute` if most members refuse CONNECT, as those of the free product with the label `http`.
   */
  readonly forwardMode: ForwardMode;
  readonly handshake: HandshakeSetting;
}

export interface SourceFault {
  readonly source: string;
  readonly active: boolean;
  /** What happened. The text contains nothing that a member sent. */
  readonly reason: string;
  readonly advice: string;
}

export interface PreparedLogin extends Login {
  /** The value of the Proxy-Authorization field (RFC 7617, in UTF-8). */
  readonly authorization: Secret;
  /** Of one member alone: its answer says nothing about the source's credentials. */
  readonly isOwn: boolean;
}

const WORKED_MS = 60_000;

export class SourceMemory {
  readonly settings: SourceSettings;
  readonly credentials: SourceCredentials;
  readonly forwardMode: ForwardModeMemory;
  readonly pipelining: Pipelining;
  readonly opening: OpeningTimes;
  readonly latency = new LatencyEstimator();
  readonly #clock: Clock;

  constructor(
    source: string,
    settings: SourceSettings,
    clock: Clock,
    onSourceFault: (fault: SourceFault) => void,
  ) {
    this.settings = settings;
    this.#clock = clock;
    this.credentials = new SourceCredentials(source, settings, clock, onSourceFault);
    this.forwardMode = new ForwardModeMemory(clock, settings.forwardMode);
    this.opening = new OpeningTimes(clock);
    this.pipelining = new Pipelining(clock, settings.handshake);
  }

  get worked(): boolean {
    return this.#clock.monotonic() - this.latency.latestAt <= WORKED_MS;
  }
}

/**
 * `open`: accepted a request without credentials. `asked`: required some, and noria sent none. `refused`: rejected
 * them, and noria has no others.
 */
type MemberAnswer = 'accepted' | 'open' | 'asked' | 'refused';

const MIN_MAJORITY_MEMBERS = 3;
/** The same for the names of one account at a gateway: they share a password. */
const MIN_REFUSED_NAMES = 2;
const WINDOW_MS = 5 * 60_000;
const MAX_ANSWERS = 1_024;

/**
 * Learns which credentials the members of one source need. `auto` sends those of the instance only after most members
 * have required some, because a single member may ask only to collect a password; after the first acceptance, all
 * members get them. When most members refuse them, the source is at fault. Beginning and end are reported once.
 */
export class SourceCredentials {
  readonly #source: string;
  readonly #access: SourceSettings;
  readonly #onFault: (fault: SourceFault) => void;
  readonly #instance: PreparedLogin | undefined;
  /** What noria sends to all members of the source. */
  current: PreparedLogin | undefined;
  readonly #answers: AgedMap<string, MemberAnswer>;
  faulty = false;
  #reported = false;

  constructor(source: string, access: SourceSettings, clock: Clock, onFault: (fault: SourceFault) => void) {
    this.#answers = new AgedMap(clock, WINDOW_MS, MAX_ANSWERS);
    this.#source = source;
    this.#access = access;
    this.#onFault = onFault;
    const { auth, instance: username, password, neverInstance } = access;
    if (!neverInstance && password !== undefined) this.#instance = prepare({ username, password });
    if (auth === 'instance') this.current = this.#instance;
    else if (typeof auth === 'object') this.current = prepare(auth);
  }

  firstFor(own: Login | undefined): PreparedLogin | undefined {
    return own === undefined ? this.current : prepare(own, this.#access.oneAccount !== true);
  }

  hasOthers(sent: PreparedLogin | undefined): boolean {
    return this.#access.auth === 'auto' && sent === undefined && this.#instance !== undefined;
  }

  /** Others accept the same credentials, they are this member's own, or noria must not send the instance's. */
  isFaultOfMember(sent: PreparedLogin | undefined): boolean {
    if (sent?.isOwn === true) return true;
    if (this.#access.neverInstance && this.current === undefined) return true;
    return this.#has(sent === undefined ? 'open' : 'accepted');
  }

  /** @returns the credentials for one retry with the same member, if noria has any. */
  refused(member: string, sent: PreparedLogin | undefined): PreparedLogin | undefined {
    if (sent?.isOwn === true) return undefined;
    if (this.hasOthers(sent)) return this.#asked(member);
    if (this.faulty || (this.#access.neverInstance && this.current === undefined)) return undefined;
    this.#answers.set(member, 'refused');
    if (!this.#isMajority('refused')) return undefined;
    this.faulty = true;
    this.#reported = true;
    this.#onFault({ source: this.#source, active: true, ...this.#explainRefusals() });
    return undefined;
  }

  /** From now on, all members of the source get these credentials. */
  accepted(member: string, sent: PreparedLogin | undefined, now?: number): void {
    if (sent?.isOwn === true) return;
    // If the attempt sent no credentials, `#current` stays unchanged: the attempt may have started before members
    // required credentials.
    if (sent !== undefined && this.#access.oneAccount !== true) this.current = sent;
    if (this.faulty) {
      this.#answers.clear();
      this.faulty = false;
    }
    this.#answers.renew(member, sent === undefined ? 'open' : 'accepted', now);
    if (!this.#reported) return;
    this.#reported = false;
    const reason = 'members accept the credentials again';
    this.#onFault({ source: this.#source, active: false, reason, advice: 'No action needed.' });
  }

  /**
   * The answer in absolute form was a 407. It is no refusal: the target may have sent it, and one target must not
   * block a whole source.
   */
  challenged(member: string, sent: PreparedLogin | undefined): void {
    if (this.hasOthers(sent)) this.current = this.#asked(member);
  }

  /** Dials use the source again. The next acceptance, or majority of refusals, is reported again. */
  resetRefusals(): void {
    this.#answers.clear();
    this.faulty = false;
    // When a member next accepts the credentials, this process reports the end of the fault, even if another process
    // reported its beginning.
    this.#reported = true;
  }

  /**
   * @returns the instance's credentials if most members require some, or this one for the second time while no member
   * works without.
   */
  #asked(member: string): PreparedLogin | undefined {
    const again = this.#answers.get(member) === 'asked';
    this.#answers.set(member, 'asked');
    const isNeeded = this.#isMajority('asked') || (again && !this.#has('open'));
    return isNeeded ? this.#instance : undefined;
  }

  #has(what: MemberAnswer): boolean {
    return this.#answers.values().includes(what);
  }

  #isMajority(what: MemberAnswer): boolean {
    const answers = this.#answers.values();
    const count = answers.filter((answer) => answer === what).length;
    const least = this.#access.oneAccount === true ? MIN_REFUSED_NAMES : MIN_MAJORITY_MEMBERS;
    return count >= least && count > answers.length / 2;
  }

  #explainRefusals(): Pick<SourceFault, 'reason' | 'advice'> {
    const answers = this.#answers.values();
    const refusals = answers.filter((answer) => answer === 'refused').length;
    const members = `${refusals} of ${answers.length} members`;
    if (this.#access.oneAccount === true)
      return {
        reason: `the gateway refused the credentials of ${members}`,
        advice:
          'Check the user name and the password in upstream.auth, and whether the vendor has to authorise the address of this machine; then resume the source.',
      };
    if (this.current !== undefined || this.#instance !== undefined) {
      return {
        reason: `${members} refused the credentials`,
        advice: 'Check the password of the instance, or upstream.auth if it contains other credentials.',
      };
    }
    return {
      reason: `${members} require credentials, and none are configured`,
      advice:
        "Bind this machine's public address in the console of the service, or configure the password of the instance (its key is not sufficient here), or set upstream.auth.",
    };
  }
}

export function isSameLogin(one: Login | undefined, other: Login | undefined): boolean {
  if (one === other) return true;
  return one?.username === other?.username && one?.password.reveal() === other?.password.reveal();
}

function prepare({ username, password }: Login, isOwn = false): PreparedLogin {
  const pair = Buffer.from(`${username}:${password.reveal()}`, 'utf8');
  return { username, password, authorization: new Secret(`Basic ${pair.toString('base64')}`), isOwn };
}

/** Common proxies wait longer than this for the first request. */
export const MAX_KEEP_MS = 10_000;
/** Then noria assumes that all members of the source close unused connections. */
export const MIN_CLOSING_MEMBERS = 3;
/** Of the time after which members close an unused connection. */
const KEEP_SHARE = 0.8;
const RELEARN_MS = 10 * 60_000;
const MAX_MEMBERS = 16;
const SAMPLE_WEIGHT = 0.1;
/** An old minimum fades, because the members of a source change. */
const MIN_GROWTH = 1.02;

export class OpeningTimes {
  /** A moving average in ms. */
  averageMs: number | undefined;
  /** Unlike the average, it hardly depends on the load of this machine. */
  minMs = Number.POSITIVE_INFINITY;
  /** How long a connection was unused when the member closed it. */
  readonly #closings: AgedMap<string, number>;

  constructor(clock: Clock) {
    this.#closings = new AgedMap(clock, RELEARN_MS, MAX_MEMBERS);
  }

  opened(ms: number): void {
    this.averageMs =
      this.averageMs === undefined ? ms : this.averageMs + SAMPLE_WEIGHT * (ms - this.averageMs);
    this.minMs = Math.min(ms, this.minMs * MIN_GROWTH);
  }

  closedUnused(member: string, afterMs: number): void {
    this.#closings.set(member, afterMs);
  }

  get keepMs(): number {
    if (this.#closings.size < MIN_CLOSING_MEMBERS) return MAX_KEEP_MS;
    const sorted = this.#closings.values().sort(ascending);
    return Math.min(MAX_KEEP_MS, KEEP_SHARE * quantile(sorted, 0.5));
  }
}

export const MIN_SAMPLES = 20;
/** The maximum number of samples to keep: a few for each member of a typical pool. */
const MAX_SAMPLES = 256;
/** Each computation sorts all samples, which takes more CPU time than a dial. */
const RECOMPUTE_INTERVAL_MS = 1_000;
const MAX_AGE_MS = 10 * 60_000;
const PERCENTILE = 0.95;
/** A member is slow if the median of its latencies exceeds both SLOW_MS and this multiple of `p95Ms`. */
const SLOW_FACTOR = 2;
const SLOW_MS = 100;

interface LatencyProfile {
  /** The 95th percentile of the latency of the faster half of the members. */
  readonly p95Ms: number;
  readonly slowMembers: readonly string[];
}

export interface LatencySample {
  readonly member: string;
  readonly ms: number;
  readonly at: number;
}

/**
 * The 95th percentile counts only the faster half of the members: if slow ones counted, long times would look normal.
 */
export class LatencyEstimator {
  readonly #samples: LatencySample[] = [];
  #nextIndex = 0;
  #computedAt = Number.NEGATIVE_INFINITY;
  latestAt = Number.NEGATIVE_INFINITY;
  /** Computed at most once a second. Undefined while there are too few samples. */
  profile: LatencyProfile | undefined;

  add(sample: LatencySample): void {
    this.latestAt = sample.at;
    this.#samples[this.#nextIndex] = sample;
    this.#nextIndex = (this.#nextIndex + 1) % MAX_SAMPLES;
    if (this.#samples.length < MIN_SAMPLES || sample.at - this.#computedAt < RECOMPUTE_INTERVAL_MS) return;
    this.#computedAt = sample.at;
    this.profile = profileOf(this.#samples, sample.at - MAX_AGE_MS);
  }
}

export function profileOf(samples: readonly LatencySample[], sinceAt: number): LatencyProfile | undefined {
  const recent = samples.filter(({ at }) => at >= sinceAt);
  if (recent.length < MIN_SAMPLES) return undefined;
  const byMember = Map.groupBy(recent, ({ member }) => member);
  const members = [...byMember].map(([member, own]) => {
    const sorted = own.map(({ ms }) => ms).sort(ascending);
    return { member, sorted, median: quantile(sorted, 0.5) };
  });
  members.sort((a, b) => a.median - b.median);
  const faster = members.slice(0, Math.ceil(members.length / 2)).flatMap(({ sorted }) => sorted);
  const p95Ms = quantile(faster.sort(ascending), PERCENTILE);
  const slowMs = Math.max(SLOW_MS, p95Ms * SLOW_FACTOR);
  const slowMembers = members.filter(({ median }) => median > slowMs).map(({ member }) => member);
  return { p95Ms, slowMembers };
}

/** The nearest-rank quantile of a sorted, non-empty list. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.ceil(sorted.length * share) - 1] ?? 0;
}

function ascending(a: number, b: number): number {
  return a - b;
}
