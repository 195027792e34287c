/**
 * HTTP clients of other projects. Each sends its requests through noria one after another, over one connection if it
 * can.
 */
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer } from 'node:stream/consumers';
import { Client } from 'undici';
import { onTestFinished } from 'vitest';
import { PYTHON } from '../support/python.ts';
import { hasCommand } from '../support/tools.ts';
import { buildGo, startProgram } from './programs.ts';

export interface GotAnswer {
  readonly status: number;
  /** The body in Latin-1. */
  readonly body: string;
  readonly error?: string;
}

export interface AnswerClient {
  ask(method: string, url: string): Promise<GotAnswer>;
}

export interface ClientKind {
  readonly name: string;
  readonly isMissing: boolean;
  /** Whether the client treats every 1xx response except 100 as the final response. */
  readonly misreadsInterim?: boolean;
  /** @param port - noria's port. */
  open(port: number): Promise<AnswerClient>;
}

const python = (kind: string) => async (port: number) =>
  openProgram(PYTHON.command, [join(import.meta.dirname, 'clients.py'), kind, `${port}`]);

export const CLIENTS: readonly ClientKind[] = [
  { name: 'node:http', isMissing: false, open: openNode },
  { name: 'undici', isMissing: false, open: openUndici },
  {
    name: 'Python http.client',
    isMissing: !hasCommand('python3'),
    misreadsInterim: true,
    open: python('http.client'),
  },
  { name: 'Python h11', isMissing: !PYTHON.modules.includes('h11'), open: python('h11') },
  {
    name: 'Go net/http',
    isMissing: !hasCommand('go'),
    open: async (port) => openProgram(await buildGo(), ['ask', `${port}`]),
  },
];

async function openNode(port: number): Promise<AnswerClient> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  return {
    ask: (method, url) =>
      new Promise((resolve) => {
        const fail = (error: Error): void => resolve({ status: 0, body: '', error: error.message });
        const sent = request({ agent, host: '127.0.0.1', port, method, path: url }, (response) => {
          buffer(response).then(
            (body) => resolve({ status: response.statusCode ?? 0, body: body.toString('latin1') }),
            fail,
          );
        });
        sent.on('error', fail).end();
      }),
  };
}

async function openUndici(port: number): Promise<AnswerClient> {
  const client = new Client(`http://127.0.0.1:${port}`);
  onTestFinished(() => client.destroy());
  return {
    async ask(method, url) {
      try {
        const { statusCode: status, body } = await client.request({ method, path: url });
        return { status, body: Buffer.from(await body.arrayBuffer()).toString('latin1') };
      } catch (error) {
        return { status: 0, body: '', error: String(error) }; // handled: the test expects some requests to fail
      }
    },
  };
}

function openProgram(command: string, args: readonly string[]): AnswerClient {
  const program = startProgram(command, args);
  const lines = createInterface(program.stdout)[Symbol.asyncIterator]();
  return {
    async ask(method, url) {
      program.stdin.write(`${method} ${url}\n`);
      const { value } = await lines.next();
      return JSON.parse(value ?? '{}');
    },
  };
}
