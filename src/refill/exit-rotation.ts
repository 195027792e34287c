/**
 * Asks for new exits of the members of a list, such as modems, one member after another: drains the member, calls its
 * rotate URL, waits until it has settled, and reads through it whether the exit has changed.
 *
 * The pace store records the calls for each member, so that neither a restart nor another noria of the fleet calls too
 * often.
 */
import { EarliestTimer, pause } from '../core/clock.ts';
import { formatDuration, SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { Secret } from '../core/secret.ts';
import type { DrawnMember } from '../pool/drawn-member.ts';
import type { DrawSourceOptions, SourceContext, UrlAccess } from './options.ts';
import { paceKey } from './pace.ts';

/** How long a rotation waits, in ms, for the open tunnels of the member to end. Then the new exit cuts them. */
const MAX_DRAIN_MS = 30 * SECOND_MS;
/** A member that is not back after `settle` is asked again this often. */
const MAX_LOOKS = 5;
/** The longest that a rotation keeps its place: a noria that ended in between blocks the member no longer. */
const MAX_ROTATION_MS = 2 * MAX_DRAIN_MS;
const MAX_NAMED = 3;

export class ExitRotation {
  readonly #context: SourceContext;
  readonly #urls: UrlAccess;
  readonly #source: string;
  /** The name of the list in the pace store, the same for all norias of a fleet. */
  readonly #key: string;
  readonly #options: NonNullable<DrawSourceOptions['rotate']>;
  readonly #timer: EarliestTimer;
  readonly #closing = new AbortController();
  #listed = new Map<string, DrawnMember>();
  readonly #dueAt = new Map<string, number>();
  readonly #exits = new Map<string, string>();
  /** Why the last rotation of a member brought no new exit. */
  readonly #problems = new Map<string, string>();
  #away: string | undefined;
  #ended: Promise<void> = Promise.resolve();

  constructor(
    context: SourceContext,
    urls: UrlAccess,
    { name, call }: DrawSourceOptions,
    options: NonNullable<DrawSourceOptions['rotate']>,
  ) {
    this.#urls = urls;
    this.#context = context;
    this.#source = name;
    this.#key = paceKey(call);
    this.#options = options;
    this.#timer = new EarliestTimer(context.clock, () => this.#next());
  }

  /** Takes the members of the list. @returns those that the pool may have now. */
  list(members: readonly DrawnMember[]): DrawnMember[] {
    const dueAt = this.#context.clock.monotonic() + this.#options.everyMs;
    this.#listed = new Map(members.map((member) => [addressOf(member), member]));
    for (const known of [this.#dueAt, this.#exits, this.#problems])
      for (const address of known.keys()) if (!this.#listed.has(address)) known.delete(address);
    for (const address of this.#listed.keys()) if (!this.#dueAt.has(address)) this.#dueAt.set(address, dueAt);
    this.#arm();
    return [...this.#listed].flatMap(([address, member]) => (address === this.#away ? [] : member));
  }

  /** Names the members without a new exit; empty if there is none. */
  text(): string {
    const problems = [...this.#problems].map(([address, problem]) => `${address}: ${problem}`);
    const more =
      problems.length > MAX_NAMED ? [`${problems.length - MAX_NAMED} more without a new exit`] : [];
    return [...problems.slice(0, MAX_NAMED), ...more].join('; ');
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#timer.disarm();
    await this.#ended;
  }

  #arm(): void {
    this.#timer.disarm();
    if (this.#away !== undefined || this.#closing.signal.aborted) return;
    this.#timer.armBy(Math.min(...this.#dueAt.values()));
  }

  #next(): void {
    const now = this.#context.clock.monotonic();
    const dueAt = (address: string) => this.#dueAt.get(address) ?? Infinity;
    const [next] = [...this.#listed].sort(([one], [other]) => dueAt(one) - dueAt(other));
    if (next === undefined || dueAt(next[0]) > now) {
      this.#arm(); // a timer may fire a moment too early
      return;
    }
    const [address, member] = next;
    this.#away = address;
    this.#ended = this.#rotate(address, member).then(() => {
      this.#away = undefined;
      this.#arm();
    });
  }

  async #rotate(address: string, member: DrawnMember): Promise<void> {
    const { clock, pool, bus } = this.#context;
    this.#dueAt.set(address, clock.monotonic() + this.#options.everyMs);
    const problem = await this.#change(address, member).catch((error: unknown) => {
      if (!(error instanceof NoriaError)) throw error;
      return error.message;
    });
    if (this.#closing.signal.aborted) return;
    if (problem === undefined) this.#problems.delete(address);
    else if (this.#problems.get(address) !== problem) {
      this.#problems.set(address, problem);
      bus.emit('source.warned', { source: this.#source, message: `${address} has no new exit: ${problem}` });
    }
    const listed = this.#listed.get(address); // the list may have changed during the rotation
    if (listed !== undefined)
      pool.addMembers(this.#source, [{ ...listed, exitIp: this.#exits.get(address) ?? listed.exitIp }]);
  }

  /** @returns why the member has no new exit: as before if the call has to wait, undefined if it has one. */
  async #change(address: string, member: DrawnMember): Promise<string | undefined> {
    const { clock, paceOf } = this.#context;
    const { everyMs } = this.#options;
    const { signal } = this.#closing;
    const rule = { intervalMs: everyMs, callTimeoutMs: MAX_ROTATION_MS };
    const place = paceOf(`rotate ${this.#key} ${address}`).enter(rule);
    try {
      for await (const waitMs of place.waits(signal)) {
        if (this.#listed.has(address)) this.#dueAt.set(address, clock.monotonic() + waitMs);
        return this.#problems.get(address);
      }
      const before = this.#exits.get(address) ?? member.exitIp ?? (await this.#exitOf(member));
      await this.#drain(member);
      const url = this.#urlFor(member);
      const connection = await this.#urls.open(this.#options.url, signal);
      try {
        const sent = await place.send((permit) => connection.get(url, permit));
        if (sent === undefined) return 'the call to the rotate URL was late, and is repeated later';
        const { status, text } = sent.result;
        if (status >= 300) return `the rotate URL answered with status ${status}${text && `: ${text}`}`;
      } finally {
        connection.close();
      }
      return await this.#verify(address, member, before);
    } finally {
      await place.leave();
    }
  }

  async #drain(member: DrawnMember): Promise<void> {
    const { bus, clock, pool } = this.#context;
    const { promise, resolve } = Promise.withResolvers<void>();
    const draining = pool.drainMember(this.#source, member);
    if (draining === undefined) return;
    const left = bus.on('member.left', ({ member: id }) => {
      if (id === draining) resolve();
    });
    await Promise.race([promise, pause(clock, MAX_DRAIN_MS, this.#closing.signal)]);
    left[Symbol.dispose]();
  }

  async #verify(
    address: string,
    member: DrawnMember,
    before: string | undefined,
  ): Promise<string | undefined> {
    const { settleMs, check } = this.#options;
    for (let look = 1; look <= MAX_LOOKS; look += 1) {
      await pause(this.#context.clock, settleMs, this.#closing.signal);
      const exit = await this.#exitOf(member);
      if (exit === undefined) continue;
      this.#exits.set(address, exit);
      return exit === before ? `the exit ${exit} did not change` : undefined;
    }
    this.#exits.delete(address);
    return `${check} shows no exit through it, ${formatDuration(MAX_LOOKS * settleMs)} after the rotation`;
  }

  #exitOf(member: DrawnMember): Promise<string | undefined> {
    return this.#urls.exitOf(this.#source, member, this.#options.check, this.#closing.signal);
  }

  #urlFor({ host, port }: DrawnMember): Secret {
    const url = this.#options.url.reveal();
    return new Secret(url.replaceAll('{host}', encodeURIComponent(host)).replaceAll('{port}', String(port)));
  }
}

function addressOf({ host, port, login }: DrawnMember): string {
  const address = formatHostPort(host, port);
  return login === undefined ? address : `${login.username}@${address}`;
}
