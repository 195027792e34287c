/**
 * The HTTP side of the extraction service. It reads each call (GET or POST), gets the answer from a rule or from the
 * operation, sends the answer, and records the call.
 *
 * It owns two servers: one for the base address, with the control API and the links, and one for the extraction address
 * of the product `short-pure`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  type Answer,
  type AnswerContext,
  type Layout,
  plainLine,
  replacesAnswer,
  sendAnswer,
  sendFault,
} from './answers.ts';
import {
  AREAS_REFUSALS,
  INSTANCES_REFUSALS,
  listAreas,
  listInstances,
  type ServiceState,
} from './exclusive.ts';
import { extract, layoutOf } from './extraction.ts';
import type { Instance } from './instance.ts';
import type { LinkServer } from './links/link-server.ts';
import {
  type RefusalCodes,
  SANDBOX_OPERATIONS,
  type SandboxOperationName,
  SUCCESS_CODE,
  textForCode,
} from './operations.ts';
import type { RuleAnswer, Rules } from './scenario.ts';
import { htmlPage, openWebServer, readBody, send, type WebServer } from './web-server.ts';

interface Endpoint {
  readonly name: SandboxOperationName;
  readonly path: string;
  readonly idName: string | undefined;
  readonly product: string;
  readonly hasRateLimit: boolean;
  readonly refusals: RefusalCodes;
  readonly decide: (call: EndpointCall, state: ServiceState) => Answer | Promise<Answer>;
  readonly layout: (call: EndpointCall) => Layout;
}

interface EndpointCall {
  readonly params: URLSearchParams;
  readonly client: string;
  readonly instance: Instance | undefined;
  /** Whether the call came too early for the instance's rate limit. */
  readonly early: boolean;
}

export interface ServiceOptions extends ServiceState {
  readonly host: string;
  readonly port: number;
  readonly extractPort: number;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly control: (request: IncomingMessage, response: ServerResponse, path: string) => Promise<void>;
  readonly links: LinkServer;
}

export interface Service {
  readonly base: WebServer;
  readonly extraction: WebServer;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 65_536;
const CONTROL_PATH = '/_control/';
const LINKS_PATH = '/links/';
const JSON_LAYOUT: Layout = { format: 'json', line: plainLine };

const ENDPOINTS: readonly Endpoint[] = [
  ...SANDBOX_OPERATIONS.map(
    (operation): Endpoint => ({
      name: operation.product,
      path: operation.path,
      idName: operation.idName,
      product: operation.product,
      hasRateLimit: true,
      refusals: operation.refusals,
      decide: (call) => extract({ operation, ...call }, call.instance),
      layout: ({ params, instance }) => layoutOf({ operation, params }, instance),
    }),
  ),
  {
    name: 'areas',
    path: '/ExclusiveProxy/GetAddibleServerList/',
    idName: 'api',
    product: 'exclusive',
    hasRateLimit: false,
    refusals: AREAS_REFUSALS,
    decide: ({ params, instance }) => listAreas(params, instance),
    layout: () => JSON_LAYOUT,
  },
  {
    name: 'instances',
    path: '/ExclusiveProxy/GetInstanceList/',
    idName: undefined,
    product: 'exclusive',
    hasRateLimit: false,
    refusals: INSTANCES_REFUSALS,
    decide: ({ params }, state) => listInstances(params, state),
    layout: () => JSON_LAYOUT,
  },
];

const EXTRACTION_ENDPOINTS = ENDPOINTS.filter(({ name }) => name === 'short-pure');
const BASE_ENDPOINTS = ENDPOINTS.filter(({ name }) => name !== 'short-pure');

export async function openService(options: ServiceOptions): Promise<Service> {
  const { host, clock } = options;
  const open = async (port: number, endpoints: readonly Endpoint[]): Promise<WebServer> => {
    const server: WebServer = await openWebServer({
      host,
      port,
      clock,
      answer: (request, response) => answerRequest(options, endpoints, { request, response, server }),
    });
    return server;
  };
  const base = await open(options.port, BASE_ENDPOINTS);
  try {
    const extraction = await open(options.extractPort, EXTRACTION_ENDPOINTS);
    const close = async () => {
      await Promise.all([base.close(), extraction.close()]);
    };
    return { base, extraction, close };
  } catch (error) {
    await base.close();
    throw error;
  }
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly server: WebServer;
}

async function answerRequest(
  options: ServiceOptions,
  endpoints: readonly Endpoint[],
  { request, response, server }: Exchange,
): Promise<void> {
  const { rules, log, clock } = options;
  const arrivedAt = clock.monotonic();
  const { method = '', url: path = '' } = request;
  const url = URL.parse(path, 'http://service.example');
  if (endpoints === BASE_ENDPOINTS && url?.pathname.startsWith(CONTROL_PATH)) {
    return options.control(request, response, url.pathname.slice(CONTROL_PATH.length));
  }
  if (endpoints === BASE_ENDPOINTS && url?.pathname.startsWith(LINKS_PATH)) {
    return options.links.answer(request, response, url.pathname.slice(LINKS_PATH.length));
  }
  const endpoint = endpoints.find((candidate) => candidate.path === url?.pathname);
  if (url === null || endpoint === undefined) return sendPage(response, 404);
  if (method !== 'GET' && method !== 'POST') return sendPage(response, 405);

  const { id, call } = await readCall(request, url, { endpoint, options });
  const { params, client, early } = call;
  const facts = { operation: endpoint.name, instance: id, method, client, arrivedAt, early };
  const record = (outcome: string) => log.add({ ...facts, params: Object.fromEntries(params), outcome });
  const context: AnswerContext = { response, path, server, clock };
  await answerCall(rules.answerTo(endpoint.name, id), { endpoint, call, options, context, record });
}

/** Decodes a call. If the operation has a rate limit, counts the call against the limit of the instance. */
async function readCall(
  request: IncomingMessage,
  url: URL,
  { endpoint, options }: { readonly endpoint: Endpoint; readonly options: ServiceOptions },
): Promise<{ readonly id: string; readonly call: EndpointCall }> {
  const params = await readParams(request, url);
  const id = endpoint.idName === undefined ? '' : (params.get(endpoint.idName) ?? '');
  const instance = options.instances.find((known) => known.id === id && known.product === endpoint.product);
  const early = endpoint.hasRateLimit && instance !== undefined && !instance.rateLimiter.admit();
  return { id, call: { params, client: request.socket.remoteAddress ?? '', instance, early } };
}

interface CallToAnswer {
  readonly endpoint: Endpoint;
  readonly call: EndpointCall;
  readonly options: ServiceOptions;
  readonly context: AnswerContext;
  /**
   * Records the call. It is called before the answer is sent, so that a client with an answer always finds the record.
   */
  readonly record: (outcome: string) => void;
}

async function answerCall(
  rule: RuleAnswer | undefined,
  { endpoint, call, options, context, record }: CallToAnswer,
): Promise<void> {
  if (rule !== undefined && 'body' in rule) {
    record('body');
    const { body, contentType = 'application/json; charset=utf-8', status = 200 } = rule;
    return send(context.response, status, { type: contentType, body });
  }
  const fault = rule !== undefined && 'fault' in rule ? rule : undefined;
  if (fault !== undefined && replacesAnswer(fault)) {
    record(`fault:${fault.fault}`);
    return sendFault(context, fault);
  }
  const answer =
    rule !== undefined && 'code' in rule
      ? answerWithCode(rule, endpoint)
      : await endpoint.decide(call, options);
  record(fault === undefined ? answer.code : `fault:${fault.fault}`);
  return sendAnswer(context, { answer, layout: endpoint.layout(call), fault });
}

function answerWithCode(
  { code, msg }: Extract<RuleAnswer, { code: string }>,
  { refusals, name }: Endpoint,
): Answer {
  const envelope = { code, msg: msg ?? textForCode(refusals, code) };
  if (code !== SUCCESS_CODE) return envelope;
  if (name === 'areas') return { ...envelope, list: { name: 'serverList', items: [] } };
  if (name === 'instances') return { ...envelope, list: { name: 'instance_list', items: [] } };
  return { ...envelope, data: { counters: {}, entries: [] } };
}

function sendPage(response: ServerResponse, status: number): void {
  send(response, status, { type: 'text/html', body: htmlPage(status) });
}

async function readParams(request: IncomingMessage, url: URL): Promise<URLSearchParams> {
  const params = new URLSearchParams(url.search);
  if (request.method !== 'POST') return params;
  const form = new URLSearchParams(await readBody(request, MAX_BODY_BYTES));
  for (const [name, value] of form) params.set(name, value);
  return params;
}

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** The instance id in the call, even if there is no such instance; empty if the call contains none. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  readonly client: string;
  readonly arrivedAt: number;
  /**
   * Whether the call came too early for the rate limit. The service does not always answer such a call with 12002 (rate
   * limit): a rule of the scenario or another check may come first.
   */
  readonly early: boolean;
  readonly outcome: string;
}

interface CallCounts {
  readonly calls: number;
  readonly paceBreaks: number;
  readonly codes: Readonly<Record<string, number>>;
}

export interface SandboxStats extends CallCounts {
  readonly instances: Readonly<Record<string, CallCounts>>;
}

const KEPT_CALLS = 1000;
const NONE: CallCounts = { calls: 0, paceBreaks: 0, codes: {} };

export class CallLog {
  #latest: CallRecord[] = [];
  #all = NONE;
  readonly #instances = new Map<string, CallCounts>();

  add(record: CallRecord): void {
    this.#latest.push(record);
    if (this.#latest.length > KEPT_CALLS) this.#latest.shift();
    this.#all = count(this.#all, record);
    if (record.instance === '') return;
    this.#instances.set(record.instance, count(this.#instances.get(record.instance) ?? NONE, record));
  }

  get latest(): readonly CallRecord[] {
    return [...this.#latest];
  }

  /** @param instances - the ids to list even if they had no calls. */
  stats(instances: readonly string[]): SandboxStats {
    const counts = new Map([...instances.map((id) => [id, NONE] as const), ...this.#instances]);
    return { ...this.#all, instances: Object.fromEntries(counts) };
  }

  reset(): void {
    this.#latest = [];
    this.#all = NONE;
    this.#instances.clear();
  }
}

function count({ calls, paceBreaks, codes }: CallCounts, { early, outcome }: CallRecord): CallCounts {
  return {
    calls: calls + 1,
    paceBreaks: paceBreaks + (early ? 1 : 0),
    codes: { ...codes, [outcome]: (codes[outcome] ?? 0) + 1 },
  };
}
