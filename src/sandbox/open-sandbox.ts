/** Opens a sandbox: creates its parts in order. Closing the sandbox closes all of them. */
import type { Socket } from 'node:net';
import { type Clock, systemClock } from '../core/clock.ts';
import { type Ownership, openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { answerControl } from './control.ts';
import type { Account } from './exclusive.ts';
import { openExits } from './exits.ts';
import { Gateway } from './gateway.ts';
import { Instance } from './instance.ts';
import { LinkServer } from './links/link-server.ts';
import type { LinkVendor } from './links/vendors.ts';
import { MemberServer } from './member-server.ts';
import type { RunningMember } from './members.ts';
import { InstanceMembers, type InstanceMembersOptions } from './members.ts';
import { SANDBOX_PRODUCTS } from './operations.ts';
import { Sandbox } from './sandbox.ts';
import { behaviourFrom, loadScenario, Rules, type Scenario } from './scenario.ts';
import { CallLog, openService, type ServiceOptions } from './service.ts';
import { type CommonSettings, fillInIdentities, type InstanceOptions } from './settings.ts';
import { openTarget } from './target.ts';

export interface SandboxOptions extends CommonSettings {
  /** The host on which the service and the target site listen. Default 127.0.0.1. */
  readonly host?: string | undefined;
  /** The port of the service. Default 0: the system chooses a free port. */
  readonly port?: number | undefined;
  /** The port of the extraction server for `short-pure` (8080 at the real service). Default 0. */
  readonly extractPort?: number | undefined;
  /** The port of the target site. Default 0. */
  readonly targetPort?: number | undefined;
  /**
   * The instances. Default: one of each product. If an instance lacks a setting, the setting of the sandbox applies.
   */
  readonly instances?: readonly InstanceOptions[] | undefined;
  /**
   * The account to which the exclusive instances belong (operation 10). Default: `sandbox` with the password
   * `sandbox0`.
   */
  readonly account?: Account | undefined;
  readonly scenario?: Scenario | string | undefined;
  /** Whether each member gets its own loopback address. Default: whether this machine can bind such an address. */
  readonly aliases?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: Random | undefined;
}

const LINK_PRODUCT = 'short-classic';
/** Far from the series of the instances and links, which are counted from 0. */
const GATEWAY_SERIES = 100;
const DEFAULT_ACCOUNT: Account = { username: 'sandbox', password: 'sandbox0' };

/**
 * Opens a sandbox. This takes only milliseconds, because members are created later, when they are drawn.
 *
 * @throws NoriaError `listen-failed` if it cannot listen on a port, `bad-config` for an invalid scenario file.
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const given = options.scenario ?? {};
  const scenario = typeof given === 'string' ? await loadScenario(given) : given;
  const parts = {
    scenario,
    account: options.account ?? DEFAULT_ACCOUNT,
    rules: new Rules(scenario.rules),
    log: new CallLog(),
    sandbox: () => sandbox,
  };
  const { built, owner } = await openAll((servers) => openServers(options, parts, servers));
  const sandbox = new Sandbox({ ...parts, ...built, close: () => owner.close() });
  return sandbox;
}

interface SandboxBase {
  readonly scenario: Scenario;
  readonly account: Account;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly sandbox: () => Sandbox;
}

async function openServers(
  options: SandboxOptions,
  { scenario, sandbox, ...base }: SandboxBase,
  owner: Ownership,
) {
  const { host = '127.0.0.1', clock = systemClock, random = systemRandom } = options;
  const exits = await openExits(options.aliases);
  const exitOf = exits.exitOf.bind(exits);
  const target = await owner.open(
    'target',
    openTarget({ host, port: options.targetPort ?? 0, clock, exitOf }),
  );
  const connections = new MemberServer(exits, clock);
  const serve = (socket: Socket, member: RunningMember) => connections.serve(socket, member);
  const makeMembers = memberFactory({ exits, clock, random, serve }, owner);
  const instances = identifiedInstances(options).map((instance) => {
    const { product } = instance;
    const behaviourOf = (n: number) => behaviourFrom(scenario.members ?? [], { product, n, random });
    return new Instance(instance, clock, makeMembers(instance, behaviourOf));
  });
  const { paceMs, lifetimeMs, port = 0, extractPort = 0 } = options;
  const membersOf = (vendor: LinkVendor) => makeMembers(linkInstance(vendor, options), () => undefined);
  const links = new LinkServer({ clock, paceMs, lifetimeMs, membersOf });
  const control: ServiceOptions['control'] = (request, response, path) =>
    answerControl(request, response, { path, sandbox: sandbox() });
  const gateway = new Gateway(exits, GATEWAY_SERIES);
  owner.own('gateway', () => gateway.close());
  await gateway.open(host);
  const service = await owner.open(
    'service',
    openService({ ...base, host, port, extractPort, instances, links, clock, control }),
  );
  return { exits, target, instances, links, gateway, service };
}

type MemberFactory = (
  instance: InstanceMembersOptions['instance'],
  behaviourOf: InstanceMembersOptions['behaviourOf'],
) => InstanceMembers;

function memberFactory(
  shared: Pick<InstanceMembersOptions, 'exits' | 'clock' | 'random' | 'serve'>,
  owner: Ownership,
): MemberFactory {
  let series = 0;
  return (instance, behaviourOf) => {
    const members = new InstanceMembers({ ...shared, instance, series, behaviourOf });
    series += 1;
    owner.own(`members of ${instance.id}`, () => members.close());
    return members;
  };
}

function identifiedInstances(options: SandboxOptions) {
  const given = options.instances ?? SANDBOX_PRODUCTS.map((product) => ({ product }));
  return fillInIdentities(given.map((own) => ({ ...commonSettings(options), ...own })));
}

function linkInstance({ name, needsLogin }: LinkVendor, options: SandboxOptions) {
  const auth = needsLogin === true ? 'password' : 'ip';
  const id = `link-${name}`;
  return {
    ...commonSettings(options),
    product: LINK_PRODUCT,
    id,
    password: 'sandbox-link',
    auth,
  } as const;
}

function commonSettings(options: SandboxOptions): CommonSettings {
  const { members, repeats, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, behaviour } = options;
  return { members, repeats, lifetimeMs, graceMs, dead, slow, slowMs, paceMs, auth, behaviour };
}
