/**
 * The sandbox: a stand-in for the extraction service. It has members that carry traffic, and a target site that reports
 * which member it saw. It uses only this machine.
 *
 * It is written from the specification and not from noria's client, so that tests find an error in either of them.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { z } from 'zod';
import { type Clock, systemClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { Ownership } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { type Exits, openExits } from './exits.ts';
import { Gateway } from './gateway.ts';
import { akeyOf, type Instance, makeInstance } from './instance.ts';
import { LINK_CONDITIONS, type LinkCondition, LinkServer, type SandboxLink } from './links.ts';
import { MemberServer } from './member-server.ts';
import { InstanceMembers, type RunningMember } from './members.ts';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import {
  type Behaviour,
  behaviourFrom,
  behaviourSchema,
  decode,
  loadScenario,
  Rules,
  ruleSchema,
  type Scenario,
} from './scenario.ts';
import { type Account, answerCall, CallLog, type CallRecord } from './service.ts';
import {
  type CommonSettings,
  type ConditionChange,
  conditionSchema,
  fillInIdentities,
  type IdentifiedOptions,
  type InstanceOptions,
} from './settings.ts';
import { Target } from './target.ts';
import { readBody, send, WebServer } from './web-server.ts';

/** Of each port, the default is 0: the system chooses a free one. */
export interface SandboxOptions extends CommonSettings {
  /** The host on which the service and the target site listen. Default 127.0.0.1. */
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  /** The port of the extraction server for `short-pure` (8080 at the real service). Default 0. */
  readonly extractPort?: number | undefined;
  readonly targetPort?: number | undefined;
  /** Default: one of each product. If an instance lacks a setting, the setting of the sandbox applies. */
  readonly instances?: readonly InstanceOptions[] | undefined;
  /** To which the exclusive instances belong (operation 10). Default: `sandbox` with the password `sandbox0`. */
  readonly account?: Account | undefined;
  readonly scenario?: Scenario | string | undefined;
  /** Whether each member gets its own loopback address. Default: whether this machine can bind such an address. */
  readonly aliases?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly random?: Random | undefined;
}

/**
 * Opens a sandbox. This takes only milliseconds, because members are created later, when they are drawn.
 *
 * @throws NoriaError `listen-failed` if it cannot listen on a port, `bad-config` for an invalid scenario file.
 */
export async function openSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const given = options.scenario ?? {};
  const scenario = typeof given === 'string' ? await loadScenario(given) : given;
  const sandbox = new Sandbox(options, scenario, await openExits(options.aliases));
  await sandbox.open();
  return sandbox;
}

const CONTROL_PATH = '/_control/';
const LINKS_PATH = '/links/';
/** Far from the series of the instances and links, which are counted from 0. */
const GATEWAY_SERIES = 100;
const DEFAULT_ACCOUNT: Account = { username: 'sandbox', password: 'sandbox0' };

export class Sandbox {
  readonly account: Account & { readonly key: string };
  readonly rules: Rules;
  readonly target: Target;
  readonly gateway: Gateway;
  readonly #exits: Exits;
  readonly #service: Parameters<typeof answerCall>[0];
  readonly #links: LinkServer;
  /** Has the control API, the links, and all operations but the extraction of `short-pure`. */
  readonly #base: WebServer;
  readonly #extraction: WebServer;
  readonly #owner = new Ownership();

  constructor(options: SandboxOptions, scenario: Scenario, exits: Exits) {
    const { host = '127.0.0.1', port = 0, extractPort = 0, targetPort = 0 } = options;
    const { clock = systemClock, random = systemRandom, account = DEFAULT_ACCOUNT } = options;
    this.account = { ...account, key: akeyOf(account.password) };
    this.rules = new Rules(scenario.rules);
    this.target = new Target(host, targetPort, clock, exits);
    this.gateway = new Gateway(exits, GATEWAY_SERIES, host);
    this.#exits = exits;

    const connections = new MemberServer(exits, clock);
    const machine = { exits, clock, random, serve: connections.serve.bind(connections) };
    let series = 0;
    const makeMembers = (instance: IdentifiedOptions, behaviourOf: (n: number) => Behaviour | undefined) => {
      const members = new InstanceMembers(machine, instance, series, behaviourOf);
      series += 1;
      this.#owner.own(`members of ${instance.id}`, () => members.close());
      return members;
    };
    const given = options.instances ?? SANDBOX_PRODUCTS.map((product) => ({ product }));
    const instances = fillInIdentities(given.map((own) => ({ ...options, ...own }))).map((instance) => {
      const { product } = instance;
      const behaviourOf = (n: number) => behaviourFrom(scenario.members ?? [], { product, n, random });
      return makeInstance(instance, clock, makeMembers(instance, behaviourOf));
    });
    this.#service = { instances, account, rules: this.rules, log: new CallLog(), clock };
    this.#links = new LinkServer(clock, options, ({ name, needsLogin }) => {
      const auth = needsLogin === true ? 'password' : 'ip';
      const own = { product: 'short-classic', id: `link-${name}`, password: 'sandbox-link', auth } as const;
      return makeMembers({ ...options, ...own }, () => undefined);
    });
    this.#base = new WebServer(host, port, clock, (request, response) => this.#answer(request, response));
    this.#extraction = new WebServer(host, extractPort, clock, (_request, response) =>
      answerCall(this.#service, this.#extraction, response, true),
    );
  }

  async open(): Promise<void> {
    try {
      await this.#owner.open('target', this.target.open());
      await this.#owner.open('gateway', this.gateway.open());
      await this.#owner.open('service', this.#base.open());
      await this.#owner.open('extraction server', this.#extraction.open());
    } catch (error) {
      await this.close().catch(() => {}); // ignored: the caller needs the first error
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#owner.close();
  }

  get url(): string {
    return this.#base.url;
  }

  get extractHost(): string {
    return this.#extraction.address;
  }

  get extractUrl(): string {
    return this.#extraction.url;
  }

  get targetUrl(): string {
    return this.target.url;
  }

  get instances() {
    return this.#service.instances.map((instance) => this.#describe(instance));
  }

  instance(product: SandboxProduct) {
    const instance = this.#service.instances.find((known) => known.product === product);
    if (instance === undefined) throw new TypeError(`the sandbox has no instance of ${product}`);
    return this.#describe(instance);
  }

  setCondition(id: string, change: ConditionChange) {
    const instance = this.#service.instances.find((known) => known.id === id);
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

  members(instance?: string): readonly ReturnType<typeof describeMember>[] {
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

  stats(): ReturnType<CallLog['stats']> {
    return this.#service.log.stats(this.#service.instances.map(({ id }) => id));
  }

  resetStats(): void {
    this.#service.log.reset();
  }

  calls(): readonly CallRecord[] {
    return this.#service.log.latest;
  }

  /** The addresses that have connected to the target and are not the exit of a member: clients that bypass the members. */
  strangers(): readonly string[] {
    return [...this.target.connections.keys()].filter((address) => !this.#exits.has(address));
  }

  #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = URL.parse(request.url ?? '', 'http://sandbox.example')?.pathname ?? '';
    if (path.startsWith(CONTROL_PATH)) return answerControl(this, path.slice(CONTROL_PATH.length), response);
    if (path.startsWith(LINKS_PATH))
      return this.#links.answer(request, response, path.slice(LINKS_PATH.length));
    return answerCall(this.#service, this.#base, response, false);
  }

  #living(): readonly RunningMember[] {
    return [...this.#service.instances.flatMap(({ members }) => members.alive), ...this.#links.members];
  }

  #find(id: string): RunningMember {
    const member = this.#living().find((candidate) => candidate.id === id);
    if (member === undefined) throw new NoriaError('not-found', `no living member ${id}`);
    return member;
  }

  /** With the password in clear text, because the password of a sandbox is not secret. */
  #describe({ product, id, options, akey, condition }: Instance) {
    const baseUrl = product === 'short-pure' ? this.extractUrl : this.url;
    return { product, id, password: options.password, akey, baseUrl, condition: { ...condition } } as const;
  }
}

function describeMember(member: RunningMember) {
  const { id, instance, host, port, behaviour, remainingMs, connections, accepted } = member;
  const { protocol, location } = member.traits;
  const place = { protocol, host, port, exit: member.exit.address, location: location.adr };
  /** `remainingMs` is the actual remaining life, even if the service reports -1 (unknown). */
  return { id, instance, ...place, behaviour, remainingMs, connections, accepted };
}

const MAX_BODY_BYTES = 1_048_576;
const linkChangeSchema = z.strictObject({ condition: z.enum(LINK_CONDITIONS) });

/** What each request to `/_control/…` does. The control API needs no credentials: by default, the sandbox listens on loopback. */
export const CONTROL_ROUTES: Readonly<
  Record<string, readonly [does: string, run: (sandbox: Sandbox, id: string, body: unknown) => unknown]>
> = {
  'GET instances': [
    'lists all instances: id, password, key, base address and condition',
    (sandbox) => sandbox.instances,
  ],
  'PATCH instances/ID': [
    'changes the condition of an instance, for example {"frozen": true}',
    (sandbox, id, body) => sandbox.setCondition(id, decode(conditionSchema.partial(), body, 'condition')),
  ],
  'GET links': [
    'lists the extraction links of other vendors: address, pace, condition and calls',
    (sandbox) => sandbox.links,
  ],
  'PUT links/ID': [
    'changes what a link answers, for example {"condition": "denied"}',
    (sandbox, id, body) => sandbox.setLinkCondition(id, decode(linkChangeSchema, body, 'link').condition),
  ],
  'GET members': ['lists all living members', (sandbox) => sandbox.members()],
  'PUT members/ID': [
    'sets the behaviour of a member for new connections, for example {"how": "slow", "ms": 800}',
    (sandbox, id, body) => sandbox.setBehaviour(id, decode(behaviourSchema, body, 'behaviour')),
  ],
  'DELETE members/ID': [
    'ends the life of a member now: closes its port and its connections',
    (sandbox, id) => sandbox.kill(id),
  ],
  'GET rules': ['lists the active rules, and how many calls each has answered', ({ rules }) => rules.list()],
  'POST rules': [
    'adds a rule, for example {"operation": "short-classic", "times": 2, "answer": {"code": "12009"}}',
    ({ rules }, _id, body) => ({ id: rules.add(decode(ruleSchema, body, 'rule')) }),
  ],
  'PUT rules': [
    'replaces all rules with a list of rules',
    ({ rules }, _id, body) => {
      const list = decode(ruleSchema.array(), body, 'rules');
      rules.clear();
      for (const rule of list) rules.add(rule);
      return rules.list();
    },
  ],
  'DELETE rules': ['removes all rules', ({ rules }) => rules.clear()],
  'DELETE rules/ID': [
    'removes one rule',
    ({ rules }, id) => {
      if (!rules.remove(id)) throw new NoriaError('not-found', `no rule ${id}`);
    },
  ],
  'GET stats': [
    'returns the numbers of calls, of calls that came too early, and of answers by code, in total and by instance',
    (sandbox) => sandbox.stats(),
  ],
  'DELETE stats': ['resets the counts', (sandbox) => sandbox.resetStats()],
  'GET calls': ['lists the latest 1,000 calls', (sandbox) => sandbox.calls()],
  'GET target': [
    'describes the target site: its address, requests, and connections by exit',
    ({ target: { url, requests, connections } }) => ({
      url,
      requests,
      connections: Object.fromEntries(connections),
    }),
  ],
};

async function answerControl(sandbox: Sandbox, path: string, response: ServerResponse): Promise<void> {
  const { req: request } = response;
  try {
    const body = await readBody(request, MAX_BODY_BYTES);
    const [name = '', id = ''] = decodePath(path);
    if (name === '') {
      const list = Object.entries(CONTROL_ROUTES).map(([route, [does]]) => ({
        request: route.replace(' ', ' /_control/'),
        does,
      }));
      return sendJson(response, 200, list);
    }
    const wanted = id === '' ? name : `${name}/ID`;
    const [, run] = CONTROL_ROUTES[`${request.method} ${wanted}`] ?? [];
    if (run === undefined) {
      const isKnown = Object.keys(CONTROL_ROUTES).some((route) => route.endsWith(` ${wanted}`));
      const message = `no ${request.method} /_control/${path}; GET /_control/ lists all requests`;
      return sendJson(response, isKnown ? 405 : 404, { error: { code: 'not-found', message } });
    }
    const result = await run(sandbox, id, parseBody(body));
    if (result === undefined) response.writeHead(204).end();
    else sendJson(response, 200, result);
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    const { code, message } = error;
    sendJson(response, code === 'not-found' ? 404 : 400, { error: { code, message } });
  }
}

function decodePath(path: string): string[] {
  try {
    return path.split('/').map(decodeURIComponent);
  } catch (cause) {
    throw new NoriaError('bad-request', `malformed percent-encoding in the path: ${path}`, { cause });
  }
}

function parseBody(text: string): unknown {
  if (text.trim() === '') return null;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new NoriaError('bad-config', 'the body is not JSON', { cause });
  }
}

function sendJson(response: ServerResponse, status: number, content: unknown): void {
  send(response, status, {
    type: 'application/json; charset=utf-8',
    body: `${JSON.stringify(content, null, 2)}\n`,
  });
}
