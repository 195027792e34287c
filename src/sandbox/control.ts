/**
 * The control API: what steers a sandbox from outside its process, as JSON below `/_control/` of the base address.
 *
 * It has no guard of its own: the sandbox listens on loopback and holds nothing worth guarding.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { NoriaError } from '../core/faults.ts';
import type { CallLog } from './call-log.ts';
import type { Rules } from './rules.ts';
import { behaviourSchema, conditionSchema, decode, ruleSchema } from './scenario.ts';
import type { SandboxControls } from './steering.ts';
import type { Target } from './target.ts';
import { readBody, send } from './web-server.ts';

/** What it steers. */
export interface ControlledParts {
  readonly steering: SandboxControls;
  readonly rules: Rules;
  readonly log: CallLog;
  readonly target: Target;
}

interface Asked {
  /** The part of the path after the route's name. */
  readonly id: string;
  readonly body: unknown;
}

interface Route {
  readonly method: string;
  /** `members` or `members/ID`. */
  readonly path: string;
  readonly does: string;
  readonly run: (asked: Asked, parts: ControlledParts) => unknown;
}

const MAX_BODY_BYTES = 1_048_576;

/** Every request of the control API; what `run` gives is sent as JSON, nothing as 204. */
export const CONTROL_ROUTES: readonly Route[] = [
  {
    method: 'GET',
    path: 'instances',
    does: 'every instance with its id, password, key, base address and condition',
    run: (_asked, { steering }) => steering.instances(),
  },
  {
    method: 'PATCH',
    path: 'instances/ID',
    does: 'changes the condition of an instance, for example {"frozen": true}',
    run: ({ id, body }, { steering }) =>
      steering.setCondition(id, decode(conditionSchema, body, 'condition')),
  },
  {
    method: 'GET',
    path: 'members',
    does: 'every member alive',
    run: (_asked, { steering }) => steering.members(),
  },
  {
    method: 'PUT',
    path: 'members/ID',
    does: 'how a member behaves from its next connection on, for example {"how": "slow", "ms": 800}',
    run: ({ id, body }, { steering }) => steering.misbehave(id, decode(behaviourSchema, body, 'behaviour')),
  },
  {
    method: 'DELETE',
    path: 'members/ID',
    does: 'ends a life now: the port closes, the tunnels are cut',
    run: ({ id }, { steering }) => steering.kill(id),
  },
  {
    method: 'GET',
    path: 'rules',
    does: 'the rules in force, with how often each was used',
    run: (_asked, { rules }) => rules.list(),
  },
  {
    method: 'POST',
    path: 'rules',
    does: 'adds a rule, for example {"operation": "short-classic", "times": 2, "answer": {"code": "12009"}}',
    run: ({ body }, { rules }) => ({ id: rules.add(decode(ruleSchema, body, 'rule')) }),
  },
  {
    method: 'PUT',
    path: 'rules',
    does: 'replaces all rules by a list',
    run: ({ body }, { rules }) => {
      const list = decode(ruleSchema.array(), body, 'rules');
      rules.clear();
      for (const rule of list) rules.add(rule);
      return rules.list();
    },
  },
  { method: 'DELETE', path: 'rules', does: 'removes all rules', run: (_asked, { rules }) => rules.clear() },
  {
    method: 'DELETE',
    path: 'rules/ID',
    does: 'removes one rule',
    run: ({ id }, { rules }) => {
      if (!rules.remove(id)) throw new NoriaError('not-found', `no rule ${id}`);
    },
  },
  {
    method: 'GET',
    path: 'stats',
    does: 'calls, calls that broke the pace, and answers by code; in all and by instance',
    run: (_asked, { steering }) => steering.stats(),
  },
  { method: 'DELETE', path: 'stats', does: 'counts from zero again', run: (_asked, { log }) => log.reset() },
  { method: 'GET', path: 'calls', does: 'the latest 1,000 calls', run: (_asked, { log }) => log.latest },
  {
    method: 'GET',
    path: 'target',
    does: 'the target site: its address, requests, and connections by the exit they came from',
    run: (_asked, { target }) => ({
      url: target.url,
      requests: target.requests,
      connections: Object.fromEntries(target.connections),
    }),
  },
];

/** Answers a request of the control API; `path` is what follows `/_control/`. */
export async function control(
  request: IncomingMessage,
  response: ServerResponse,
  { path, parts }: { readonly path: string; readonly parts: ControlledParts },
): Promise<void> {
  try {
    const body = await readBody(request, MAX_BODY_BYTES);
    const [name = '', id = ''] = decodePath(path);
    if (name === '') return sendJson(response, 200, CONTROL_ROUTES.map(describeRoute));
    const wanted = id === '' ? name : `${name}/ID`;
    const routes = CONTROL_ROUTES.filter((route) => route.path === wanted);
    const route = routes.find(({ method }) => method === request.method);
    if (route === undefined) {
      const message = `no ${request.method} /_control/${path}; GET /_control/ lists all requests`;
      return sendError(response, routes.length > 0 ? 405 : 404, 'not-found', message);
    }
    const result = await route.run({ id, body: readJson(body) }, parts);
    if (result === undefined) response.writeHead(204).end();
    else sendJson(response, 200, result);
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    sendError(response, error.code === 'not-found' ? 404 : 400, error.code, error.message);
  }
}

/** @throws NoriaError `bad-request` for an escape sequence that is not UTF-8. */
function decodePath(path: string): string[] {
  try {
    return path.split('/').map(decodeURIComponent);
  } catch (cause) {
    throw new NoriaError('bad-request', `malformed percent-encoding in the path: ${path}`, { cause });
  }
}

function describeRoute({ method, path, does }: Route): Readonly<Record<string, string>> {
  return { request: `${method} /_control/${path}`, does };
}

/** The body as JSON; nothing at all counts as null. */
function readJson(text: string): unknown {
  if (text.trim() === '') return null;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new NoriaError('bad-config', 'the body is not JSON', { cause });
  }
}

function sendError(response: ServerResponse, status: number, code: string, message: string): void {
  sendJson(response, status, { error: { code, message } });
}

function sendJson(response: ServerResponse, status: number, content: unknown): void {
  send(response, status, 'application/json; charset=utf-8', `${JSON.stringify(content, null, 2)}\n`);
}
