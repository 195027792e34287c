/**
 * The extraction service's HTTP side: takes calls by GET and POST, has them decided, brings the answer, keeps the log.
 *
 * Owns two servers: one for the base address (with the control API beside the operations), one for the extraction
 * host of the pure edition.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../core/clock.ts';
import type { CallLog } from './call-log.ts';
import { EXTRACTION_REFUSALS, type Refusals, SUCCESS, textForCode } from './codes.ts';
import { bring, type Delivery, isLost, lose, type SpoiledAnswer } from './delivery.ts';
import { type Account, AREAS_REFUSALS, INSTANCES_REFUSALS, listAreas, listInstances } from './exclusive.ts';
import { extract, layoutOf } from './extraction.ts';
import type { Instance } from './instance.ts';
import { type Answer, type Layout, plainLine } from './layouts.ts';
import { OPERATIONS, type OperationName } from './operations.ts';
import type { RuleAnswer, Rules } from './rules.ts';
import { openWebServer, pageOf, readBody, send, type WebServer } from './web-server.ts';

export interface ServiceOptions {
  readonly host: string;
  readonly port: number;
  readonly extractPort: number;
  readonly instances: readonly Instance[];
  readonly account: Account;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly clock: Clock;
  /** Takes what is asked below `/_control`. */
  readonly control: (request: IncomingMessage, response: ServerResponse, path: string) => Promise<void>;
}

export interface Service {
  readonly base: WebServer;
  /** The extraction server of the pure edition. */
  readonly extraction: WebServer;
  close(): Promise<void>;
}

/** One operation as the HTTP side sees it. */
interface Endpoint {
  readonly name: OperationName;
  readonly path: string;
  /** The parameter that names the instance, if one does. */
  readonly idName: string | undefined;
  /** The product that the instance must be of. */
  readonly product: string;
  readonly hasPace: boolean;
  readonly refusals: Refusals;
  readonly decide: (call: EndpointCall, options: ServiceOptions) => Answer | Promise<Answer>;
  readonly layout: (call: EndpointCall) => Layout;
}

interface EndpointCall {
  readonly params: URLSearchParams;
  readonly client: string;
  readonly instance: Instance | undefined;
  readonly early: boolean;
}

const MAX_BODY_BYTES = 65_536;
const CONTROL_PATH = '/_control';
const JSON_LAYOUT: Layout = { format: 'json', line: plainLine };

const ENDPOINTS: readonly Endpoint[] = [
  ...OPERATIONS.map(
    (operation): Endpoint => ({
      name: operation.product,
      path: operation.path,
      idName: operation.idName,
      product: operation.product,
      hasPace: true,
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
    hasPace: false,
    refusals: AREAS_REFUSALS,
    decide: ({ params, instance }) => listAreas(params, instance),
    layout: () => JSON_LAYOUT,
  },
  {
    name: 'instances',
    path: '/ExclusiveProxy/GetInstanceList/',
    idName: undefined,
    product: 'exclusive',
    hasPace: false,
    refusals: INSTANCES_REFUSALS,
    decide: ({ params }, { account, instances, clock }) =>
      listInstances(params, { account, instances, clock }),
    layout: () => JSON_LAYOUT,
  },
];

/** @throws NoriaError `listen-failed` */
export async function openService(options: ServiceOptions): Promise<Service> {
  const { host, clock } = options;
  const onExtraction = ENDPOINTS.filter(({ name }) => name === 'short-pure');
  const onBase = ENDPOINTS.filter(({ name }) => name !== 'short-pure');
  const serve = async (port: number, endpoints: readonly Endpoint[]): Promise<WebServer> => {
    const server: WebServer = await openWebServer({
      host,
      port,
      clock,
      take: (request, response) => take(options, endpoints, { request, response, server }),
    });
    return server;
  };
  const base = await serve(options.port, onBase);
  try {
    const extraction = await serve(options.extractPort, onExtraction);
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

async function take(
  options: ServiceOptions,
  endpoints: readonly Endpoint[],
  { request, response, server }: Exchange,
): Promise<void> {
  const { instances, rules, log, clock } = options;
  const arrivedAt = clock.monotonic();
  const path = request.url ?? '';
  const url = URL.parse(path, 'http://service.example');
  if (url?.pathname.startsWith(`${CONTROL_PATH}/`) && endpoints.length > 1) {
    return options.control(request, response, url.pathname.slice(CONTROL_PATH.length + 1));
  }
  const endpoint = endpoints.find((candidate) => candidate.path === url?.pathname);
  if (url === null || endpoint === undefined)
    return send(response, 404, 'text/html', pageOf(404, 'Not Found'));
  const { method = '' } = request;
  if (method !== 'GET' && method !== 'POST') {
    return send(response, 405, 'text/html', pageOf(405, 'Method Not Allowed'));
  }
  const params = await readParams(request, url);
  const id = endpoint.idName === undefined ? '' : (params.get(endpoint.idName) ?? '');
  const instance = instances.find((known) => known.id === id && known.product === endpoint.product);
  const early = endpoint.hasPace && instance !== undefined && !instance.takePace();
  const client = request.socket.remoteAddress ?? '';
  const call: EndpointCall = { params, client, instance, early };

  const rule = rules.take(endpoint.name, id);
  const delivery: Delivery = { response, path, server, clock };
  const note = (outcome: string) =>
    log.note({
      operation: endpoint.name,
      instance: id,
      method,
      params: Object.fromEntries(params),
      client,
      arrivedAt,
      early,
      outcome,
    });
  await answer(rule, { endpoint, call, options, delivery, note });
}

interface Turn {
  readonly endpoint: Endpoint;
  readonly call: EndpointCall;
  readonly options: ServiceOptions;
  readonly delivery: Delivery;
  /** Notes the outcome before anything of the answer leaves. */
  readonly note: (outcome: string) => void;
}

async function answer(
  rule: RuleAnswer | undefined,
  { endpoint, call, options, delivery, note }: Turn,
): Promise<void> {
  if (rule !== undefined && 'body' in rule) {
    note('body');
    const { body, contentType = 'application/json; charset=utf-8', status = 200 } = rule;
    return send(delivery.response, status, contentType, body);
  }
  const fault = rule !== undefined && 'fault' in rule ? rule : undefined;
  if (fault !== undefined && isLost(fault)) {
    note(`fault:${fault.fault}`);
    return lose(delivery, fault);
  }
  const given = rule !== undefined && 'code' in rule ? ruledAnswer(rule, endpoint) : undefined;
  const decided = given ?? (await endpoint.decide(call, options));
  const spoiled: SpoiledAnswer | undefined = fault;
  note(spoiled === undefined ? decided.code : `fault:${spoiled.fault}`);
  return bring(delivery, { answer: decided, layout: endpoint.layout(call), fault: spoiled });
}

/** The refusal that a rule asks for; success without a single proxy for 10001. */
function ruledAnswer(
  { code, msg }: Extract<RuleAnswer, { code: string }>,
  { refusals, name }: Endpoint,
): Answer {
  const said = { code, msg: msg ?? textForCode({ ...EXTRACTION_REFUSALS, ...refusals }, code) };
  if (code !== SUCCESS) return said;
  if (name === 'areas') return { ...said, list: { name: 'serverList', items: [] } };
  if (name === 'instances') return { ...said, list: { name: 'instance_list', items: [] } };
  return { ...said, data: { counters: {}, entries: [] } };
}

/** The parameters of the query and, with POST, of the form in the body; the body's win. */
async function readParams(request: IncomingMessage, url: URL): Promise<URLSearchParams> {
  const params = new URLSearchParams(url.search);
  if (request.method !== 'POST') return params;
  const form = new URLSearchParams(await readBody(request, MAX_BODY_BYTES));
  for (const [name, value] of form) params.set(name, value);
  return params;
}
