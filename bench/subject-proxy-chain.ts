/** The obvious solution: twenty lines around proxy-chain, with a random member for each request. */
import { Server } from 'proxy-chain';
import { MEMBER_LOGIN } from './socks-member.ts';
import { serveSubject } from './subject.ts';

serveSubject(async ({ world, protocol, login }) => {
  const ports = protocol === 'http' ? world.httpMembers : world.socksMembers;
  const userinfo = login === true ? `${MEMBER_LOGIN.username}:${MEMBER_LOGIN.password}@` : '';
  const server = new Server({
    host: '127.0.0.1',
    port: 0,
    prepareRequestFunction: () => ({
      upstreamProxyUrl: `${protocol}://${userinfo}${world.memberHost}:${ports[Math.floor(Math.random() * ports.length)]}`,
    }),
  });
  await server.listen();
  return server.port;
});
