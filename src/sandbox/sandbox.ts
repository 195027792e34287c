/**
 * The sandbox: a stand-in for the whole extraction service, with members that carry traffic and a target that says
 * which of them it saw. Nothing of it leaves this machine.
 *
 * Written from the specification, not from noria's client, so that one misreading cannot hide in both.
 */
import type { Clock } from '../core/clock.ts';
import { systemClock } from '../core/clock.ts';
import { openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { Crew } from './crew.ts';
import { openExits } from './exits.ts';
import { Fleet } from './fleet.ts';
import {
  type CallCounts,
  type CommonSettings,
  type Condition,
  Instance,
  type InstanceOptions,
  settleIdentities,
} from './instance.ts';
import type { Member } from './member.ts';
import { PRODUCTS, type Product } from './operations.ts';
import { openService } from './service.ts';
import { openTarget, type Target } from './target.ts';
import type { Temper } from './temper.ts';

export interface SandboxOptions extends CommonSettings {
  /** Where service and target listen. Default 127.0.0.1. */
  readonly host?: string;
  /** The service's port. Default 0: a free one. */
  readonly port?: number;
  /** The port of the pure edition's extraction server (8080 at the real service). Default 0. */
  readonly extractPort?: number;
  /** The target site's port. Default 0. */
  readonly targetPort?: number;
  /** Default: one of each product. What an instance leaves out it takes from here. */
  readonly instances?: readonly InstanceOptions[];
  /** Whether members get a loopback address each; absent: tried. */
  readonly aliases?: boolean;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** An instance as its owner knows it from the console. */
export interface SandboxInstance {
  readonly product: Product;
  readonly id: string;
  readonly password: string;
  /** What clients derive from the password and send. */
  readonly akey: string;
  /** What to configure as the base address of this instance's calls: the pure edition has one of its own. */
  readonly baseUrl: string;
  /** May be changed at any time; counts from the next call on. */
  readonly condition: Condition;
}

/** A member as the sandbox sees it. */
export interface SandboxMember {
  readonly id: string;
  readonly instance: string;
  readonly protocol: string;
  readonly host: string;
  readonly port: number;
  /** The address that targets see. */
  readonly exit: string;
  readonly location: string;
  readonly temper: Temper;
  readonly remainingMs: number;
  /** Connections that it has, and that it ever accepted. */
  readonly connections: number;
  readonly accepted: number;
}

/** Calls so far: in all, and for each instance by its id. */
export interface SandboxStats extends Readonly<CallCounts> {
  readonly instances: Readonly<Record<string, Readonly<CallCounts>>>;
}

export interface Sandbox {
  /** Base address of the service, without a slash at its end. */
  readonly url: string;
  /** `host:port` of the pure edition's extraction server, and the same as an address. */
  readonly extractHost: string;
  readonly extractUrl: string;
  readonly target: Target;
  /** `http://host:port` of the target site. */
  readonly targetUrl: string;
  readonly instances: readonly SandboxInstance[];
  /** The first instance of a product. @throws TypeError when there is none. */
  instance(product: Product): SandboxInstance;
  /** Members alive now: of all instances, or of the one with this id. */
  members(instance?: string): readonly SandboxMember[];
  /** Makes a living member behave so from its next connection on. @throws TypeError for one that is gone. */
  misbehave(member: string, temper: Temper): Promise<void>;
  /** Ends a member's life now: its port closes, its tunnels are cut. @throws TypeError for one that is gone. */
  kill(member: string): Promise<void>;
  stats(): SandboxStats;
  /** Addresses that reached the target without being a member's exit. Empty as long as nobody went there directly. */
  strangers(): readonly string[];
  /** Leaves no socket, timer or server. Safe to call twice. */
  close(): Promise<void>;
}

/**
 * Opens it all. Members are made when they are first drawn, so this takes a few milliseconds.
 *
 * @throws the system's error when a port cannot be listened on.
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const { host = '127.0.0.1', clock = systemClock, random = systemRandom } = options;
  const { built, owner } = await openAll(async (parts) => {
    const exits = await parts.open(
      'exits',
      openExits(options.aliases === undefined ? {} : { aliases: options.aliases }),
    );
    const target = await parts.open(
      'target',
      openTarget({ host, port: options.targetPort ?? 0, clock, exitOf: (...from) => exits.seenAs(...from) }),
    );
    const crew = new Crew(exits, clock);
    const given = options.instances ?? PRODUCTS.map((product) => ({ product }));
    const settled = settleIdentities(given.map((own) => ({ ...settingsOf(options), ...own })));
    const instances = settled.map((instance, series) => {
      const serve = crew.serve.bind(crew);
      const fleet = new Fleet({ instance, series, exits, clock, random, serve });
      parts.own(`members of ${instance.product}`, () => fleet.close());
      return new Instance(instance, clock, fleet);
    });
    const byId = new Map(instances.map((instance) => [instance.id, instance]));
    const service = await parts.open(
      'service',
      openService({ host, port: options.port ?? 0, extractPort: options.extractPort ?? 0, instances: byId }),
    );
    return { exits, target, instances, service };
  });
  const { exits, target, instances, service } = built;
  const extractUrl = `http://${service.extractHost}`;
  const known = instances.map((instance) => describeInstance(instance, service.url, extractUrl));
  const living = () => instances.flatMap(({ fleet }) => fleet.members);
  const find = (id: string): Member => {
    const member = living().find((candidate) => candidate.id === id);
    if (member === undefined) throw new TypeError(`no living member ${id}`);
    return member;
  };

  return {
    url: service.url,
    extractHost: service.extractHost,
    extractUrl,
    target,
    targetUrl: target.url,
    instances: known,
    instance(product) {
      const instance = known.find((candidate) => candidate.product === product);
      if (instance === undefined) throw new TypeError(`the sandbox has no instance of ${product}`);
      return instance;
    },
    members: (id) =>
      living()
        .filter(({ instance }) => id === undefined || id === instance)
        .map(describeMember),
    misbehave: (id, temper) => find(id).behave(temper),
    kill: (id) => find(id).close(),
    stats: () => countCalls(instances),
    strangers: () => [...target.connections.keys()].filter((address) => !exits.has(address)),
    close: () => owner.close(),
  };
}

function settingsOf(options: SandboxOptions): CommonSettings {
  const { members, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, temper } = options;
  return { members, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, temper };
}

function describeInstance(instance: Instance, url: string, extractUrl: string): SandboxInstance {
  const { product, id, password, akey, condition } = instance;
  return { product, id, password, akey, condition, baseUrl: product === 'short-pure' ? extractUrl : url };
}

function describeMember(member: Member): SandboxMember {
  const { id, instance, host, port, temper, remainingMs, connections, accepted, traits } = member;
  const { protocol, place } = traits;
  const exit = member.exit.address;
  return {
    id,
    instance,
    protocol,
    host,
    port,
    exit,
    location: place.adr,
    temper,
    remainingMs,
    connections,
    accepted,
  };
}

function countCalls(instances: readonly Instance[]): SandboxStats {
  const all: CallCounts = { calls: 0, paceBreaks: 0, codes: {} };
  for (const { counts } of instances) {
    all.calls += counts.calls;
    all.paceBreaks += counts.paceBreaks;
    for (const [code, count] of Object.entries(counts.codes))
      all.codes[code] = (all.codes[code] ?? 0) + count;
  }
  return {
    ...all,
    instances: Object.fromEntries(instances.map(({ id, counts }) => [id, structuredClone(counts)])),
  };
}
