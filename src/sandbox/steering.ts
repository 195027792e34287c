/** The verbs by which a test, a user or the control API steers a sandbox that runs, and what they may see of it. */
import { NoriaError } from '../core/faults.ts';
import type { CallLog, SandboxStats } from './call-log.ts';
import type { Instance } from './instance.ts';
import type { RunningMember } from './member.ts';
import type { Behaviour } from './member-behaviour.ts';
import type { ProxyProtocol, SandboxProduct } from './operations.ts';
import type { Condition, ConditionChange } from './settings.ts';

/** An instance as its owner knows it from the console. */
export interface SandboxInstance {
  readonly product: SandboxProduct;
  readonly id: string;
  /** In clear: it protects nothing. */
  readonly password: string;
  /** What clients derive from the password and send. */
  readonly akey: string;
  /** What to configure as the base address of this instance's calls: the pure edition has one of its own. */
  readonly baseUrl: string;
  readonly condition: Readonly<Condition>;
}

/** A member as the sandbox sees it. */
export interface SandboxMember {
  readonly id: string;
  /** The id of its instance. */
  readonly instance: string;
  readonly protocol: ProxyProtocol;
  readonly host: string;
  readonly port: number;
  /** The address that targets see. */
  readonly exit: string;
  readonly location: string;
  readonly behaviour: Behaviour;
  /** What is left of its life, also where the service tells -1. */
  readonly remainingMs: number;
  /** Connections that it has, and that it ever accepted. */
  readonly connections: number;
  readonly accepted: number;
}

export interface SteeringOptions {
  readonly instances: readonly Instance[];
  readonly log: CallLog;
  /** Where calls for an instance of a product go. */
  readonly baseUrlOf: (product: SandboxProduct) => string;
}

export class SandboxControls {
  readonly #options: SteeringOptions;

  constructor(options: SteeringOptions) {
    this.#options = options;
  }

  instances(): readonly SandboxInstance[] {
    return this.#options.instances.map((instance) => this.#describe(instance));
  }

  /** Changes what stands of an instance, from the next call on. @throws NoriaError `not-found` */
  setCondition(id: string, change: ConditionChange): SandboxInstance {
    const instance = this.#options.instances.find((known) => known.id === id);
    if (instance === undefined) throw new NoriaError('not-found', `no instance ${id}`);
    const changed = Object.entries(change).filter(([, value]) => value !== undefined);
    Object.assign(instance.condition, Object.fromEntries(changed));
    return this.#describe(instance);
  }

  /** Members alive now: of all instances, or of the one with this id. */
  members(instance?: string): readonly SandboxMember[] {
    return this.#living()
      .filter((member) => instance === undefined || member.instance === instance)
      .map(describeMember);
  }

  /** Makes a member behave so from its next connection on. @throws NoriaError `not-found` */
  async misbehave(id: string, behaviour: Behaviour): Promise<void> {
    await this.#find(id).behave(behaviour);
  }

  /** Ends a member's life now: its port closes, its tunnels are cut. @throws NoriaError `not-found` */
  async kill(id: string): Promise<void> {
    await this.#find(id).close();
  }

  stats(): SandboxStats {
    return this.#options.log.stats(this.#options.instances.map(({ id }) => id));
  }

  #living(): readonly RunningMember[] {
    return this.#options.instances.flatMap(({ members: fleet }) => fleet.members);
  }

  #find(id: string): RunningMember {
    const member = this.#living().find((candidate) => candidate.id === id);
    if (member === undefined) throw new NoriaError('not-found', `no living member ${id}`);
    return member;
  }

  #describe({ product, id, password, akey, condition }: Instance): SandboxInstance {
    const baseUrl = this.#options.baseUrlOf(product);
    return { product, id, password, akey, baseUrl, condition: { ...condition } };
  }
}

function describeMember(member: RunningMember): SandboxMember {
  const { id, instance, host, port, behaviour, remainingMs, connections, accepted } = member;
  const { protocol, location: place } = member.traits;
  const exit = member.exit.address;
  return {
    id,
    instance,
    protocol,
    host,
    port,
    exit,
    location: place.adr,
    behaviour,
    remainingMs,
    connections,
    accepted,
  };
}
