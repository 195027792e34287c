/** HTTP servers of other projects. Each reports every complete request that it gets, and answers it with `X-Seen`. */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import { PYTHON } from '../support/python.ts';
import { hasCommand } from '../support/tools.ts';
import { buildGo, startProgram } from './programs.ts';
import type { SeenRequest } from './request-corpus.ts';

export interface Backend {
  readonly port: number;
  readonly seen: SeenRequest[];
}

export interface BackendKind {
  readonly name: string;
  readonly isMissing: boolean;
  open(): Promise<Backend>;
}

export const BACKENDS: readonly BackendKind[] = [
  { name: 'node:http', isMissing: false, open: openNode },
  {
    name: 'Python http.server',
    isMissing: !hasCommand('python3'),
    open: () => openProgram(PYTHON.command, [join(import.meta.dirname, 'servers.py'), 'http.server']),
  },
  {
    name: 'Python h11',
    isMissing: !PYTHON.modules.includes('h11'),
    open: () => openProgram(PYTHON.command, [join(import.meta.dirname, 'servers.py'), 'h11']),
  },
  {
    name: 'Go net/http',
    isMissing: !hasCommand('go'),
    open: async () => openProgram(await buildGo(), ['serve']),
  },
];

/** The value of `X-Seen`. */
export function digest({ method, target, body }: Pick<SeenRequest, 'method' | 'target' | 'body'>): string {
  return `${method} ${target} ${createHash('sha1').update(body, 'latin1').digest('hex')}`;
}

async function openNode(): Promise<Backend> {
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    buffer(request).then(
      (content) => {
        const { method = '', url: target = '', rawHeaders, rawTrailers } = request;
        const body = content.toString('latin1');
        seen.push({ method, target, fields: lines(rawHeaders), body, trailers: lines(rawTrailers) });
        response.writeHead(200, { 'X-Seen': digest({ method, target, body }), 'Content-Length': 0 }).end();
      },
      () => {}, // ignored: a request that ends in the middle is no whole request
    );
  });
  server.keepAliveTimeout = 0;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

function lines(flat: readonly string[]): string[] {
  return flat.flatMap((name, at) => (at % 2 === 0 ? [`${name.toLowerCase()}: ${flat[at + 1]}`] : []));
}

async function openProgram(command: string, args: readonly string[]): Promise<Backend> {
  const program = startProgram(command, args);
  const seen: SeenRequest[] = [];
  const port = await new Promise<number>((resolve) => {
    createInterface(program.stdout)
      .once('line', (first) => resolve(Number(first)))
      .on('line', (line) => {
        if (line.startsWith('{')) seen.push(JSON.parse(line));
      });
  });
  return { port, seen };
}
