/**
 * The sandbox: a stand-in for the extraction service. It has members that carry traffic, and a target site that reports
 * which member it saw. It uses only this machine.
 *
 * It is written from the specification and not from noria's client, so that tests find an error in either of them.
 */
import { NoriaError } from '../core/faults.ts';
import type { CallLog, CallRecord, SandboxStats } from './call-log.ts';
import type { Account } from './exclusive.ts';
import type { Exits } from './exits.ts';
import { akeyOf, type Instance } from './instance.ts';
import type { LinkCondition, LinkServer, SandboxLink } from './links/link-server.ts';
import type { RunningMember } from './member.ts';
import type { ProxyProtocol, SandboxProduct } from './operations.ts';
import type { Rules } from './rules.ts';
import type { Behaviour } from './scenario.ts';
import type { Service } from './service.ts';
import type { Condition, ConditionChange } from './settings.ts';
import type { Target } from './target.ts';

/** What the service's console shows to the owner of an instance. */
export interface SandboxInstance {
  readonly product: SandboxProduct;
  readonly id: string;
  /** The password in clear text, because the password of a sandbox is not secret. */
  readonly password: string;
  /** The key that clients derive from the password and send with each call. */
  readonly akey: string;
  /**
   * The base address for calls of this instance. The product `short-pure` has a separate server for them; all other
   * instances use the sandbox's `url`.
   */
  readonly baseUrl: string;
  readonly condition: Readonly<Condition>;
}

interface SandboxMember {
  readonly id: string;
  /** The id of the member's instance. */
  readonly instance: string;
  readonly protocol: ProxyProtocol;
  readonly host: string;
  readonly port: number;
  /** The address that targets see. */
  readonly exit: string;
  readonly location: string;
  readonly behaviour: Behaviour;
  /** The actual remaining life, even if the service reports -1 (unknown). */
  readonly remainingMs: number;
  readonly connections: number;
  /** The number of connections that the member has accepted so far. */
  readonly accepted: number;
}

interface SandboxParts {
  readonly instances: readonly Instance[];
  readonly account: Account;
  readonly exits: Exits;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly target: Target;
  readonly links: LinkServer;
  readonly service: Service;
  readonly close: () => Promise<void>;
}

export class Sandbox {
  /** The base address of the service, without a slash at the end. The control API is at `/_control/` below it. */
  readonly url: string;
  /** The address of the extraction server for `short-pure`, as `host:port` and as a URL. */
  readonly extractHost: string;
  readonly extractUrl: string;
  readonly target: Target;
  readonly targetUrl: string;
  /** The account of operation 10. `key` is what clients send instead of the password. */
  readonly account: Account & { readonly key: string };
  readonly rules: Rules;
  readonly #instances: readonly Instance[];
  readonly #exits: Exits;
  readonly #log: CallLog;
  readonly #links: LinkServer;
  readonly #close: () => Promise<void>;

  constructor({ instances, account, exits, rules, log, target, links, service, close }: SandboxParts) {
    this.url = service.base.url;
    this.extractHost = service.extraction.address;
    this.extractUrl = service.extraction.url;
    this.target = target;
    this.targetUrl = target.url;
    this.account = { ...account, key: akeyOf(account.password) };
    this.rules = rules;
    this.#instances = instances;
    this.#exits = exits;
    this.#log = log;
    this.#links = links;
    this.#close = close;
  }

  get instances(): readonly SandboxInstance[] {
    return this.#instances.map((instance) => this.#describe(instance));
  }

  /**
   * Returns the first instance of a product.
   * @throws TypeError if there is none.
   */
  instance(product: SandboxProduct): SandboxInstance {
    const instance = this.#instances.find((known) => known.product === product);
    if (instance === undefined) throw new TypeError(`the sandbox has no instance of ${product}`);
    return this.#describe(instance);
  }

  /**
   * Changes the state of an instance at the service, for example `frozen`. Applies to all later calls.
   * @throws NoriaError `not-found`
   */
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

  /**
   * Returns the link of a vendor.
   * @throws TypeError if there is none.
   */
  link(name: string): SandboxLink {
    const link = this.links.find((known) => known.name === name);
    if (link === undefined) throw new TypeError(`the sandbox has no link ${name}`);
    return link;
  }

  /**
   * Sets how a link answers all later calls.
   * @throws NoriaError `not-found`
   */
  setLinkCondition(name: string, condition: LinkCondition): SandboxLink {
    this.#links.setCondition(name, condition);
    return this.link(name);
  }

  /**
   * Returns the living members of one instance or link (`link-NAME`). Without `instance`, returns those of all
   * instances and links.
   */
  members(instance?: string): readonly SandboxMember[] {
    return this.#living()
      .filter((member) => instance === undefined || member.instance === instance)
      .map(describeMember);
  }

  /**
   * Sets the behaviour of a member for new connections.
   * @throws NoriaError `not-found`
   */
  async setBehaviour(member: string, behaviour: Behaviour): Promise<void> {
    await this.#find(member).setBehaviour(behaviour);
  }

  /**
   * Ends a member's life now: closes its port and its connections.
   * @throws NoriaError `not-found`
   */
  async kill(member: string): Promise<void> {
    await this.#find(member).close();
  }

  stats(): SandboxStats {
    return this.#log.stats(this.#instances.map(({ id }) => id));
  }

  resetStats(): void {
    this.#log.reset();
  }

  /** Returns the latest 1,000 calls, oldest first. */
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

  close(): Promise<void> {
    return this.#close();
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

function describeMember(member: RunningMember): SandboxMember {
  const { id, instance, host, port, behaviour, remainingMs, connections, accepted } = member;
  const { protocol, location } = member.traits;
  const exit = member.exit.address;
  return {
    id,
    instance,
    protocol,
    host,
    port,
    exit,
    location: location.adr,
    behaviour,
    remainingMs,
    connections,
    accepted,
  };
}
