/**
 * The extraction service's HTTP side: takes calls by GET and POST, has them decided, brings the answer, keeps the log.
 *
 * Owns two servers: one for the base address (with the control API beside the operations), one for the extraction
 * host of the pure edition.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { CallLog } from './call-log.ts';
import { SUCCESS_CODE, textForCode } from './codes.ts';
import { ENDPOINTS, type Endpoint, type EndpointCall, type ServiceState } from './endpoints.ts';
import type { Answer } from './layouts.ts';
import type { RuleAnswer, Rules } from './rules.ts';
import {
  type AlteringFault,
  type AnswerContext,
  replacesAnswer,
  sendAnswer,
  sendFault,
} from './send-answer.ts';
import { openWebServer, pageOf, readBody, send, type WebServer } from './web-server.ts';

export interface ServiceOptions extends ServiceState {
  readonly host: string;
  readonly port: number;
  readonly extractPort: number;
  readonly rules: Rules;
  readonly log: CallLog;
  /** Takes what is asked below `/_control/` of the base address; `path` is what follows. */
  readonly control: (request: IncomingMessage, response: ServerResponse, path: string) => Promise<void>;
}

export interface Service {
  readonly base: WebServer;
  /** The extraction server of the pure edition. */
  readonly extraction: WebServer;
  close(): Promise<void>;
}

const MAX_BODY_BYTES = 65_536;
const CONTROL_PATH = '/_control/';
const ON_EXTRACTION = ENDPOINTS.filter(({ name }) => name === 'short-pure');
const ON_BASE = ENDPOINTS.filter(({ name }) => name !== 'short-pure');

/** @throws NoriaError `listen-failed` */
export async function openService(options: ServiceOptions): Promise<Service> {
  const { host, clock } = options;
  const serve = async (port: number, endpoints: readonly Endpoint[]): Promise<WebServer> => {
    const server: WebServer = await openWebServer({
      host,
      port,
      clock,
      take: (request, response) => take(options, endpoints, { request, response, server }),
    });
    return server;
  };
  const base = await serve(options.port, ON_BASE);
  try {
    const extraction = await serve(options.extractPort, ON_EXTRACTION);
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
  const { rules, log, clock } = options;
  const arrivedAt = clock.monotonic();
  const { method = '', url: path = '' } = request;
  const url = URL.parse(path, 'http://service.example');
  if (endpoints !== ON_EXTRACTION && url?.pathname.startsWith(CONTROL_PATH)) {
    return options.control(request, response, url.pathname.slice(CONTROL_PATH.length));
  }
  const endpoint = endpoints.find((candidate) => candidate.path === url?.pathname);
  if (url === null || endpoint === undefined) return sendPage(response, 404, 'Not Found');
  if (method !== 'GET' && method !== 'POST') return sendPage(response, 405, 'Method Not Allowed');

  const { id, call } = await readCall(request, url, { endpoint, options });
  const { params, client, early } = call;
  const seen = { operation: endpoint.name, instance: id, method, client, arrivedAt, early };
  const note = (outcome: string) => log.note({ ...seen, params: Object.fromEntries(params), outcome });
  const delivery: AnswerContext = { response, path, server, clock };
  await answer(rules.take(endpoint.name, id), { endpoint, call, options, delivery, note });
}

/** Who calls for what; notes the arrival where the operation has a pace. */
async function readCall(
  request: IncomingMessage,
  url: URL,
  { endpoint, options }: { readonly endpoint: Endpoint; readonly options: ServiceOptions },
): Promise<{ readonly id: string; readonly call: EndpointCall }> {
  const params = await readParams(request, url);
  const id = endpoint.idName === undefined ? '' : (params.get(endpoint.idName) ?? '');
  const instance = options.instances.find((known) => known.id === id && known.product === endpoint.product);
  const early = endpoint.hasPace && instance !== undefined && !instance.takePace();
  return { id, call: { params, client: request.socket.remoteAddress ?? '', instance, early } };
}

interface Turn {
  readonly endpoint: Endpoint;
  readonly call: EndpointCall;
  readonly options: ServiceOptions;
  readonly delivery: AnswerContext;
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
  if (fault !== undefined && replacesAnswer(fault)) {
    note(`fault:${fault.fault}`);
    return sendFault(delivery, fault);
  }
  const given = rule !== undefined && 'code' in rule ? ruledAnswer(rule, endpoint) : undefined;
  const decided = given ?? (await endpoint.decide(call, options));
  const spoiled: AlteringFault | undefined = fault;
  note(spoiled === undefined ? decided.code : `fault:${spoiled.fault}`);
  return sendAnswer(delivery, { answer: decided, layout: endpoint.layout(call), fault: spoiled });
}

/** The refusal that a rule asks for; success without a single proxy for 10001. */
function ruledAnswer(
  { code, msg }: Extract<RuleAnswer, { code: string }>,
  { refusals, name }: Endpoint,
): Answer {
  const said = { code, msg: msg ?? textForCode(refusals, code) };
  if (code !== SUCCESS_CODE) return said;
  if (name === 'areas') return { ...said, list: { name: 'serverList', items: [] } };
  if (name === 'instances') return { ...said, list: { name: 'instance_list', items: [] } };
  return { ...said, data: { counters: {}, entries: [] } };
}

function sendPage(response: ServerResponse, status: number, title: string): void {
  send(response, status, 'text/html', pageOf(status, title));
}

/** The parameters of the query and, with POST, of the form in the body; the body's win. */
async function readParams(request: IncomingMessage, url: URL): Promise<URLSearchParams> {
  const params = new URLSearchParams(url.search);
  if (request.method !== 'POST') return params;
  const form = new URLSearchParams(await readBody(request, MAX_BODY_BYTES));
  for (const [name, value] of form) params.set(name, value);
  return params;
}
