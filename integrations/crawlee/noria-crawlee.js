/**
 * Crawlee through noria: Crawlee's session is noria's session, and a session that Crawlee retires is a ban of its exit.
 *
 *   const crawler = new CheerioCrawler({ ...noria({ proxy: 'http://me:x@localhost:8888' }), requestHandler });
 */
import { request } from 'node:http';
import { ProxyConfiguration, Session } from 'crawlee';

export function noria({ proxy = 'http://me:x@localhost:8888' } = {}) {
  const urlOf = (sessionId) => {
    const url = new URL(proxy);
    url.username = `${url.username}-session-${sessionId}`;
    return url.href;
  };
  return {
    useSessionPool: true,
    persistCookiesPerSession: true,
    proxyConfiguration: new ProxyConfiguration({ newUrlFunction: (sessionId) => urlOf(sessionId) }),
    sessionPoolOptions: {
      createSessionFunction(sessionPool, { sessionOptions } = {}) {
        const session = new Session({ ...sessionPool.sessionOptions, ...sessionOptions, sessionPool });
        const retire = session.retire.bind(session);
        session.retire = () => {
          retire();
          const { noriaHost } = session.userData;
          if (noriaHost !== undefined) void reportBan(urlOf(session.id), noriaHost);
        };
        return session;
      },
    },
    preNavigationHooks: [
      ({ request: { url }, session }) => {
        if (session !== undefined) session.userData.noriaHost = new URL(url).hostname;
      },
    ],
  };
}

/** Tells noria that the site has banned the exit of this proxy URL. @returns the status: 204 if noria recorded it. */
export function reportBan(proxyUrl, host) {
  const { hostname, port, username, password } = new URL(proxyUrl);
  const login = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return new Promise((resolve, reject) => {
    const options = {
      host: hostname,
      port,
      method: 'POST',
      path: `http://noria.invalid/banned?host=${encodeURIComponent(host)}`,
      headers: { 'Proxy-Authorization': `Basic ${Buffer.from(login).toString('base64')}` },
    };
    request(options, (answer) => resolve(answer.resume().statusCode))
      .on('error', reject)
      .end();
  });
}
