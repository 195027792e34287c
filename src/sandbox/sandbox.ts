/**
 * The sandbox: a stand-in for the whole extraction service, with members that carry traffic and a target that says
 * which of them it saw. Nothing of it leaves this machine.
 *
 * Written from the specification, not from noria's client, so that one misreading cannot hide in both.
 */
import { type Clock, systemClock } from '../core/clock.ts';
import { openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { akeyOf } from './akey.ts';
import { CallLog, type CallRecord, type SandboxStats } from './call-log.ts';
import { ConnectionServer } from './connection-server.ts';
import { control } from './control.ts';
import type { Account } from './exclusive.ts';
import { openExits } from './exits.ts';
import { Instance } from './instance.ts';
import { InstanceMembers } from './instance-members.ts';
import type { Behaviour } from './member-behaviour.ts';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import { Rules } from './rules.ts';
import { behaviourFrom, loadScenario, type Scenario } from './scenario.ts';
import { openService, type Service } from './service.ts';
import {
  type CommonSettings,
  type ConditionChange,
  type InstanceOptions,
  settleIdentities,
} from './settings.ts';
import { SandboxControls, type SandboxInstance, type SandboxMember } from './steering.ts';
import { openTarget, type Target } from './target.ts';

export interface SandboxOptions extends CommonSettings {
  /** Where service and target listen. Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** The service's port. Default 0: a free one. */
  readonly port?: number | undefined;
  /** The port of the pure edition's extraction server (8080 at the real service). Default 0. */
  readonly extractPort?: number | undefined;
  /** The target site's port. Default 0. */
  readonly targetPort?: number | undefined;
  /** Default: one of each product. What an instance leaves out it takes from here. */
  readonly instances?: readonly InstanceOptions[] | undefined;
  /** Who owns the exclusive instances (operation 10). Default `sandbox` with the password `sandbox0`. */
  readonly account?: Account | undefined;
  /** What goes wrong: a scenario, or the path of a YAML or JSON file with one. */
  readonly scenario?: Scenario | string | undefined;
  /** Whether members get a loopback address each; absent: tried. */
  readonly aliases?: boolean | undefined;
  readonly clock?: Clock | undefined;
  /** A seeded one makes lives, places and behaviours repeatable. */
  readonly random?: Random | undefined;
}

export interface Sandbox {
  /** Base address of the service, without a slash at its end; the control API is below `/_control/`. */
  readonly url: string;
  /** The pure edition's extraction server as `host:port`, and the same as an address. */
  readonly extractHost: string;
  readonly extractUrl: string;
  readonly target: Target;
  /** `http://host:port` of the target site. */
  readonly targetUrl: string;
  /** The account of operation 10, with the 16-character form of its password. */
  readonly account: Account & { readonly key: string };
  readonly instances: readonly SandboxInstance[];
  /** The first instance of a product. @throws TypeError when there is none. */
  instance(product: SandboxProduct): SandboxInstance;
  /** Changes an instance's condition from the next call on. @throws NoriaError `not-found` */
  setCondition(instance: string, change: ConditionChange): void;
  /** Answers on demand. */
  readonly rules: Rules;
  /** Members alive now: of all instances, or of the one with this id. */
  members(instance?: string): readonly SandboxMember[];
  /** Makes a living member behave so from its next connection on. @throws NoriaError `not-found` */
  misbehave(member: string, behaviour: Behaviour): Promise<void>;
  /** Ends a member's life now: its port closes, its tunnels are cut. @throws NoriaError `not-found` */
  kill(member: string): Promise<void>;
  stats(): SandboxStats;
  /** The latest 1,000 calls, oldest first. */
  calls(): readonly CallRecord[];
  /** Addresses that reached the target without being a member's exit. Empty as long as nobody went there directly. */
  strangers(): readonly string[];
  /** Leaves no socket, timer or server. Safe to call twice. */
  close(): Promise<void>;
}

const DEFAULT_ACCOUNT: Account = { username: 'sandbox', password: 'sandbox0' };

/**
 * Opens it all. Members are made when they are first drawn, so this takes a few milliseconds.
 *
 * @throws NoriaError `listen-failed` when a port cannot be listened on, `bad-config` for a scenario file that is wrong.
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const {
    host = '127.0.0.1',
    clock = systemClock,
    random = systemRandom,
    account = DEFAULT_ACCOUNT,
  } = options;
  const scenario =
    typeof options.scenario === 'string' ? await loadScenario(options.scenario) : (options.scenario ?? {});
  const rules = new Rules(scenario.rules);
  const log = new CallLog();

  const { built, owner } = await openAll(async (parts) => {
    const exits = await openExits(options.aliases);
    const exitOf = exits.seenAs.bind(exits);
    const target = await parts.open(
      'target',
      openTarget({ host, port: options.targetPort ?? 0, clock, exitOf }),
    );
    const crew = new ConnectionServer(exits, clock);
    const serve = crew.serve.bind(crew);
    const given = options.instances ?? SANDBOX_PRODUCTS.map((product) => ({ product }));
    const settled = settleIdentities(given.map((own) => ({ ...commonOf(options), ...own })));
    const instances = settled.map((instance, series) => {
      const { product } = instance;
      const ruled = (n: number) => behaviourFrom(scenario.members ?? [], { product, n, random });
      const fleet = new InstanceMembers({ instance, series, exits, clock, random, serve, behaviour: ruled });
      parts.own(`members of ${instance.id}`, () => fleet.close());
      return new Instance(instance, clock, fleet);
    });
    const steering = new SandboxControls({
      instances,
      log,
      baseUrlOf: (product) => (product === 'short-pure' ? service.extraction.url : service.base.url),
    });
    const service: Service = await parts.open(
      'service',
      openService({
        host,
        port: options.port ?? 0,
        extractPort: options.extractPort ?? 0,
        instances,
        account,
        rules,
        log,
        clock,
        control: (request, response, path) =>
          control(request, response, { path, parts: { steering, rules, log, target } }),
      }),
    );
    return { exits, target, service, steering };
  });

  const { exits, target, service, steering } = built;
  const { base, extraction } = service;
  return {
    url: base.url,
    extractHost: extraction.address,
    extractUrl: extraction.url,
    target,
    targetUrl: target.url,
    account: { ...account, key: akeyOf(account.password) },
    rules,
    get instances() {
      return steering.instances();
    },
    instance(product) {
      const instance = steering.instances().find((known) => known.product === product);
      if (instance === undefined) throw new TypeError(`the sandbox has no instance of ${product}`);
      return instance;
    },
    setCondition: (id, change) => void steering.setCondition(id, change),
    members: (id) => steering.members(id),
    misbehave: (id, behaviour) => steering.misbehave(id, behaviour),
    kill: (id) => steering.kill(id),
    stats: () => steering.stats(),
    calls: () => log.latest,
    strangers: () => [...target.connections.keys()].filter((address) => !exits.has(address)),
    close: () => owner.close(),
  };
}

/** What instances take from the sandbox's own options unless they say it themselves. */
function commonOf(options: SandboxOptions): CommonSettings {
  const { members, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, behaviour } = options;
  return { members, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, behaviour };
}
