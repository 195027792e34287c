/**
 * The control API: JSON requests to `/_control/…` that control a running sandbox. It needs no credentials: by default,
 * the sandbox listens on loopback, and it has no secrets.
 */
import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { NoriaError } from '../core/faults.ts';
import { LINK_CONDITIONS } from './links/link-server.ts';
import type { Sandbox } from './sandbox.ts';
import { behaviourSchema, decode, ruleSchema } from './scenario.ts';
import { conditionSchema } from './settings.ts';
import { readBody, send } from './web-server.ts';

interface Route {
  readonly method: string;
  readonly path: string;
  readonly does: string;
  readonly run: (request: { readonly id: string; readonly body: unknown }, sandbox: Sandbox) => unknown;
}

const MAX_BODY_BYTES = 1_048_576;
const linkChangeSchema = z.strictObject({ condition: z.enum(LINK_CONDITIONS) });

export const CONTROL_ROUTES: readonly Route[] = [
  {
    method: 'GET',
    path: 'instances',
    does: 'lists all instances: id, password, key, base address and condition',
    run: (_request, sandbox) => sandbox.instances,
  },
  {
    method: 'PATCH',
    path: 'instances/ID',
    does: 'changes the condition of an instance, for example {"frozen": true}',
    run: ({ id, body }, sandbox) =>
      sandbox.setCondition(id, decode(conditionSchema.partial(), body, 'condition')),
  },
  {
    method: 'GET',
    path: 'links',
    does: 'lists the extraction links of other vendors: address, pace, condition and calls',
    run: (_request, sandbox) => sandbox.links,
  },
  {
    method: 'PUT',
    path: 'links/ID',
    does: 'changes what a link answers, for example {"condition": "denied"}',
    run: ({ id, body }, sandbox) =>
      sandbox.setLinkCondition(id, decode(linkChangeSchema, body, 'link').condition),
  },
  {
    method: 'GET',
    path: 'members',
    does: 'lists all living members',
    run: (_request, sandbox) => sandbox.members(),
  },
  {
    method: 'PUT',
    path: 'members/ID',
    does: 'sets the behaviour of a member for new connections, for example {"how": "slow", "ms": 800}',
    run: ({ id, body }, sandbox) => sandbox.setBehaviour(id, decode(behaviourSchema, body, 'behaviour')),
  },
  {
    method: 'DELETE',
    path: 'members/ID',
    does: 'ends the life of a member now: closes its port and its connections',
    run: ({ id }, sandbox) => sandbox.kill(id),
  },
  {
    method: 'GET',
    path: 'rules',
    does: 'lists the active rules, and how many calls each has answered',
    run: (_request, { rules }) => rules.list(),
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
    does: 'replaces all rules with a list of rules',
    run: ({ body }, { rules }) => {
      const list = decode(ruleSchema.array(), body, 'rules');
      rules.clear();
      for (const rule of list) rules.add(rule);
      return rules.list();
    },
  },
  { method: 'DELETE', path: 'rules', does: 'removes all rules', run: (_request, { rules }) => rules.clear() },
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
    does: 'returns the numbers of calls, of calls that came too early, and of answers by code, in total and by instance',
    run: (_request, sandbox) => sandbox.stats(),
  },
  {
    method: 'DELETE',
    path: 'stats',
    does: 'resets the counts',
    run: (_request, sandbox) => sandbox.resetStats(),
  },
  {
    method: 'GET',
    path: 'calls',
    does: 'lists the latest 1,000 calls',
    run: (_request, sandbox) => sandbox.calls(),
  },
  {
    method: 'GET',
    path: 'target',
    does: 'describes the target site: its address, requests, and connections by exit',
    run: (_request, { target: { url, requests, connections } }) => ({
      url,
      requests,
      connections: Object.fromEntries(connections),
    }),
  },
];

export async function answerControl(sandbox: Sandbox, path: string, response: ServerResponse): Promise<void> {
  const { req: request } = response;
  try {
    const body = await readBody(request, MAX_BODY_BYTES);
    const [name = '', id = ''] = decodePath(path);
    if (name === '') {
      const list = CONTROL_ROUTES.map((route) => ({
        request: `${route.method} /_control/${route.path}`,
        does: route.does,
      }));
      return sendJson(response, 200, list);
    }
    const wanted = id === '' ? name : `${name}/ID`;
    const routes = CONTROL_ROUTES.filter((route) => route.path === wanted);
    const route = routes.find(({ method }) => method === request.method);
    if (route === undefined) {
      const message = `no ${request.method} /_control/${path}; GET /_control/ lists all requests`;
      return sendJson(response, routes.length > 0 ? 405 : 404, { error: { code: 'not-found', message } });
    }
    const result = await route.run({ id, body: parseBody(body) }, sandbox);
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
