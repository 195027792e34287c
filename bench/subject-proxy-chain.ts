/** What most people would write: twenty lines around proxy-chain, with a random member for each request. */
import { Server } from 'proxy-chain';
import { serveSubject } from './subject.ts';

serveSubject(async ({ world, protocol }) => {
  const ports = protocol === 'socks5' ? world.socksMembers : world.httpMembers;
  const scheme = protocol === 'socks5' ? 'socks5' : 'http';
  const server = new Server({
    host: '127.0.0.1',
    port: 0,
    prepareRequestFunction: () => ({
      upstreamProxyUrl: `${scheme}://127.0.0.1:${ports[Math.floor(Math.random() * ports.length)]}`,
    }),
  });
  await server.listen();
  return server.port;
});
