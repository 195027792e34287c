/** A site that shows a captcha to the first exits it sees, with status 200, and its own page to all others. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface BanningSite {
  readonly port: number;
  /** The exits that got the captcha. */
  readonly banned: ReadonlySet<string>;
  /** The exits that got the page, one entry for each. */
  readonly served: readonly string[];
  close(): Promise<void>;
}

/** @param count - so many exits are banned. */
export async function openBanningSite(count: number): Promise<BanningSite> {
  const banned = new Set<string>();
  const served: string[] = [];
  const server = createServer((request, response) => {
    const exit = request.socket.remoteAddress ?? '';
    if (request.url !== '/page') return void response.writeHead(404).end();
    if (banned.size < count) banned.add(exit);
    if (!banned.has(exit)) served.push(exit);
    response.setHeader('Content-Type', 'text/html');
    response.end(banned.has(exit) ? '<h1>captcha</h1>' : `<h1>page for ${exit}</h1>`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    banned,
    served,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
