/** An extraction service that records when calls arrive, and norias in separate processes that call it. */
import { readFileSync } from 'node:fs';
import http, { type RequestListener } from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type NoriaProcess, runNoria, testFolder, writeIn } from '../journeys/noria-process.ts';
import { listen, openDelayingProxy, portOf } from './delaying-proxy.ts';

const TLS = join(import.meta.dirname, '../fixtures/service/tls');
const CERTIFICATE = join(TLS, 'localhost.cert.pem');

export interface StageOptions {
  /** The sources, which all use one instance. */
  readonly sources: readonly { readonly name: string; readonly intervalMs: number }[];
  readonly product: string;
  readonly timeoutMs: number;
  /**
   * How long the proxy delays each connection to the service, by the connection's number. With TLS, it delays the
   * handshake.
   */
  readonly delayMs?: (connection: number) => number;
  readonly tls?: boolean;
}

export interface Stage {
  /** When each call arrived, in monotonic ms. */
  readonly arrivals: readonly number[];
  /** The `count` parameter of each call. */
  readonly counts: readonly number[];
  /** How many requests (with TLS: connections) have begun, whether or not they have arrived. */
  begun(): number;
  /** The minimum time between two arrivals. */
  leastGapMs(): number;
  run(env?: Readonly<Record<string, string>>): NoriaProcess;
  extract(source: string): NoriaProcess;
}

/** Opens the stage. The first source gets only one member per call, so it draws all the time. */
export async function openStage(options: StageOptions): Promise<Stage> {
  const arrivals: number[] = [];
  const counts: number[] = [];
  const answer: RequestListener = (request, response) => {
    arrivals.push(performance.now());
    counts.push(Number(new URL(request.url ?? '', 'http://service').searchParams.get('count')));
    const member = { ip: '127.0.0.1', port: 1_000 + arrivals.length, timeout: 3_000 };
    response.end(JSON.stringify({ code: '10001', data: { count: 1, proxy_list: [member] } }));
  };
  const identity = { key: readFileSync(join(TLS, 'localhost.key.pem')), cert: readFileSync(CERTIFICATE) };
  const server = options.tls === true ? https.createServer(identity, answer) : http.createServer(answer);
  await listen(server);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const proxy = await openDelayingProxy(portOf(server), options.delayMs ?? (() => 0));
  const folder = testFolder();
  const scheme = options.tls === true ? 'https' : 'http';
  const file = writeIn(
    folder,
    'noria.yaml',
    configuration(options, `${scheme}://127.0.0.1:${proxy.port}`, folder),
  );
  const trust = { NODE_EXTRA_CA_CERTS: CERTIFICATE };
  return {
    arrivals,
    counts,
    begun: proxy.begun,
    leastGapMs: () => Math.min(...arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? 0))),
    run: (env = {}) => runNoria(['run', '-c', file], { env: { ...trust, ...env } }),
    extract: (source) => runNoria(['extract', source, '-c', file], { env: trust }),
  };
}

function configuration(
  { sources, product, timeoutMs }: StageOptions,
  baseUrl: string,
  folder: string,
): string {
  const entries = sources.map(
    ({ name, intervalMs }, index) =>
      `  - { name: ${name}, product: ${product}, instance: "1", akey: "0123456789abcdef", interval: ${intervalMs}ms, params: { count: ${index + 1} } }`,
  );
  return `
service: { baseUrl: "${baseUrl}", timeout: ${timeoutMs}ms }
sources:
${entries.join('\n')}
pool: { size: 100, idleAfter: 0s, allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:0" }]
admin: off
state: { dir: "${join(folder, 'state')}" }
`;
}
