/** What the admin API says to machines that have a format of their own: Prometheus, and browsers that want a proxy. */
import { createRoute, type OpenAPIHono } from '@hono/zod-openapi';
import { NoriaError } from '../core/faults.ts';
import type { AdminBackend } from './backend.ts';
import type { Metrics } from './metrics.ts';
import { NOT_FOUND, textResponse } from './openapi.ts';

/** Adds what monitoring and browsers read. */
export function addMachineReads(app: OpenAPIHono, metrics: Metrics, backend: AdminBackend): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/metrics',
      summary: 'Prometheus metrics',
      responses: { 200: textResponse('the metrics', 'text/plain') },
    }),
    async (context) => context.text(await metrics.render(), 200, { 'Content-Type': metrics.contentType }),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/proxy.pac',
      summary: 'A PAC file that sends everything but this machine through the first listener',
      responses: { 200: textResponse('the file', 'application/x-ns-proxy-autoconfig'), 404: NOT_FOUND },
    }),
    (context) => {
      const address = backend.proxyAddress();
      if (address === undefined) throw new NoriaError('not-found', 'no listener speaks HTTP');
      return context.body(pacFile(address), 200, { 'Content-Type': 'application/x-ns-proxy-autoconfig' });
    },
  );
}

/** No DIRECT behind PROXY: a browser must not go around noria when it is down. */
function pacFile(address: string): string {
  return `function FindProxyForURL(url, host) {
  if (host === "localhost" || host === "127.0.0.1" || host === "[::1]" || host === "::1") return "DIRECT";
  return "PROXY ${address}";
}
`;
}
