/** The service of a trial. It has troubles, returns dead members, repeats members and refuses large counts. */
import { NoriaError } from '../../../src/core/faults.ts';
import { SimulatedService, type SimulatedServiceOptions } from '../../../src/refill/simulation/service.ts';
import type { DrawAnswer } from '../../../src/service/answer.ts';
import type { DrawnEntry } from '../../../src/service/fields.ts';
import type { DrawCall } from '../../../src/service/request.ts';
import type { TroubleKind, World } from './world.ts';

/** The error of each trouble in which the service does not answer. */
const NO_ANSWER: Partial<Record<TroubleKind, NoriaError>> = {
  outage: new NoriaError('service-transport', 'the simulated service refused the connection'),
  blocked: new NoriaError('service-blocked', 'the simulated service answered with a web page'),
};

export class UnreliableService extends SimulatedService {
  readonly #world: World;
  readonly #arrived: (call: DrawCall) => void;
  readonly #dead = new Set<string>();
  /** The members that each instance has got. */
  readonly #given = new Map<string, DrawnEntry[]>();

  /** @param arrived - called when a call reaches the service. */
  constructor(options: SimulatedServiceOptions, world: World, arrived: (call: DrawCall) => void) {
    super(options);
    this.#world = world;
    this.#arrived = arrived;
  }

  override accepts(host: string, port: number): boolean {
    return !this.#dead.has(`${host}:${port}`) && super.accepts(host, port);
  }

  protected override answer(call: DrawCall): Pick<DrawAnswer, 'code' | 'entries'> {
    const { troubles, maxCount } = this.#world;
    this.#arrived(call);
    const now = this.options.clock.monotonic();
    const trouble = troubles.find(({ fromMs, toMs }) => now >= fromMs && now < toMs)?.kind;
    const failure = trouble && NO_ANSWER[trouble];
    if (failure !== undefined) {
      this.countCall('transport');
      throw failure;
    }
    const refusal = trouble ?? ((call.count ?? 0) > maxCount ? '12003' : undefined);
    if (refusal === undefined) return super.answer(call);
    this.countCall(refusal);
    return { code: refusal, entries: [] };
  }

  protected override createMember(call: DrawCall): DrawnEntry {
    const { random } = this.options;
    const { deadShare, repeatShare } = this.#world;
    const repeated = random() < repeatShare ? this.#repeatMember(call) : undefined;
    if (repeated !== undefined) return repeated;
    const entry = super.createMember(call);
    if (random() < deadShare) this.#dead.add(`${entry.host}:${entry.port}`);
    if (repeatShare > 0) this.#given.set(call.instance, [...(this.#given.get(call.instance) ?? []), entry]);
    return entry;
  }

  #repeatMember({ instance }: DrawCall): DrawnEntry | undefined {
    const { clock, random } = this.options;
    const alive = (this.#given.get(instance) ?? []).flatMap(({ host, port }) => {
      const member = this.member(host, port);
      const lifetimeMs = Math.floor((member?.expiresAt ?? 0) - clock.monotonic());
      return member === undefined ? [] : [{ host, port, lifetimeMs }];
    });
    this.#given.set(instance, alive);
    return alive[Math.floor(random() * alive.length)];
  }
}
