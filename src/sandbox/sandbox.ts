/**
 * The sandbox: a stand-in for the extraction service. It has members that carry traffic, and a target site that reports
 * which member it saw. It uses only this machine.
 *
 * It is written from the specification and not from noria's client, so that tests find an error in either of them.
 */
import { NoriaError } from '../core/faults.ts';
import type { Account } from './exclusive.ts';
import type { Exits } from './exits.ts';
import type { Gateway } from './gateway.ts';
import { akeyOf, type Instance } from './instance.ts';
import type { LinkCondition, LinkServer, SandboxLink } from './links/link-server.ts';
import type { RunningMember } from './members.ts';
import type { SandboxProduct } from './operations.ts';
import type { Behaviour, Rules } from './scenario.ts';
import type { CallLog, CallRecord, SandboxStats, Service } from './service.ts';
import type { Condition, ConditionChange } from './settings.ts';
import type { Target } from './target.ts';

export interface SandboxInstance {
  readonly product: SandboxProduct;
  readonly id: string;
  /** The password in clear text, because the password of a sandbox is not secret. */
  readonly password: string;
  readonly akey: string;
  readonly baseUrl: string;
  readonly condition: Readonly<Condition>;
}

type SandboxMember = ReturnType<typeof describeMember>;

interface SandboxParts {
  readonly instances: readonly Instance[];
  readonly account: Account;
  readonly exits: Exits;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly target: Target;
  readonly links: LinkServer;
  readonly gateway: Gateway;
  readonly service: Service;
  readonly close: () => Promise<void>;
}

export class Sandbox {
  readonly url: string;
  readonly extractHost: string;
  readonly extractUrl: string;
  readonly target: Target;
  readonly targetUrl: string;
  readonly account: Account & { readonly key: string };
  readonly rules: Rules;
  readonly gateway: Gateway;
  readonly close: () => Promise<void>;
  readonly #instances: readonly Instance[];
  readonly #exits: Exits;
  readonly #log: CallLog;
  readonly #links: LinkServer;

  constructor(parts: SandboxParts) {
    const { account, service, target } = parts;
    this.gateway = parts.gateway;
    this.url = service.base.url;
    this.extractHost = service.extraction.address;
    this.extractUrl = service.extraction.url;
    this.target = target;
    this.targetUrl = target.url;
    this.account = { ...account, key: akeyOf(account.password) };
    this.rules = parts.rules;
    this.close = parts.close;
    this.#instances = parts.instances;
    this.#exits = parts.exits;
    this.#log = parts.log;
    this.#links = parts.links;
  }

  get instances(): readonly SandboxInstance[] {
    return this.#instances.map((instance) => this.#describe(instance));
  }

  instance(product: SandboxProduct): SandboxInstance {
    const instance = this.#instances.find((known) => known.product === product);
    if (instance === undefined) throw new TypeError(`the sandbox has no instance of ${product}`);
    return this.#describe(instance);
  }

  setCondition(id: string, change: ConditionChange): SandboxInstance {
    const instance = this.#instances.find((known) => known.id === id);
    if (instance === undefined) throw new NoriaError('not-found', `no instance ${id}`);
    const changed = Object.entries(change).filter(([, value]) => value !== undefined);
    Object.assign(instance.condition, Object.fromEntries(changed));
    return this.#describe(instance);
  }

  get links(): readonly SandboxLink[] {
    return this.#links.list(this.url);
  }

  link(name: string): SandboxLink {
    const link = this.links.find((known) => known.name === name);
    if (link === undefined) throw new TypeError(`the sandbox has no link ${name}`);
    return link;
  }

  setLinkCondition(name: string, condition: LinkCondition): SandboxLink {
    this.#links.setCondition(name, condition);
    return this.link(name);
  }

  members(instance?: string): readonly SandboxMember[] {
    return this.#living()
      .filter((member) => instance === undefined || member.instance === instance)
      .map(describeMember);
  }

  async setBehaviour(member: string, behaviour: Behaviour): Promise<void> {
    await this.#find(member).setBehaviour(behaviour);
  }

  async kill(member: string): Promise<void> {
    await this.#find(member).close();
  }

  stats(): SandboxStats {
    return this.#log.stats(this.#instances.map(({ id }) => id));
  }

  resetStats(): void {
    this.#log.reset();
  }

  calls(): readonly CallRecord[] {
    return this.#log.latest;
  }

  /**
   * Returns the addresses that have connected to the target and are not the exit of a member. A client that bypasses
   * the members is in this list.
   */
  strangers(): readonly string[] {
    return [...this.target.connections.keys()].filter((address) => !this.#exits.has(address));
  }

  #living(): readonly RunningMember[] {
    return [...this.#instances.flatMap(({ members }) => members.alive), ...this.#links.members];
  }

  #find(id: string): RunningMember {
    const member = this.#living().find((candidate) => candidate.id === id);
    if (member === undefined) throw new NoriaError('not-found', `no living member ${id}`);
    return member;
  }

  #describe({ product, id, password, akey, condition }: Instance): SandboxInstance {
    const baseUrl = product === 'short-pure' ? this.extractUrl : this.url;
    return { product, id, password, akey, baseUrl, condition: { ...condition } };
  }
}

function describeMember(member: RunningMember) {
  const { id, instance, host, port, behaviour, remainingMs, connections, accepted } = member;
  const { protocol, location } = member.traits;
  const exit = member.exit.address;
  const place = { protocol, host, port, exit, location: location.adr };
  /** `remainingMs` is the actual remaining life, even if the service reports -1 (unknown). */
  return { id, instance, ...place, behaviour, remainingMs, connections, accepted };
}
