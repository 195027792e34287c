import { request } from 'node:http';

/**
 * The status and the body of a GET of `url` through a proxy at `host:port`.
 *
 * @param credentials - `user:password` of the client; absent: none.
 */
export function getThrough(proxy: string, url: string, credentials?: string): Promise<string> {
  const [host, port] = proxy.split(':');
  const headers = {
    host: new URL(url).host,
    ...(credentials === undefined
      ? {}
      : { 'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}` }),
  };
  return new Promise((resolve, reject) => {
    const asked = request({ host, port, path: url, headers, agent: false }, async (answer) => {
      let body = '';
      for await (const chunk of answer) body += chunk;
      resolve(`${answer.statusCode} ${body.trim()}`);
    });
    asked.on('error', reject);
    asked.end();
  });
}

/** The status and the body of a GET of `url` through a member of this source. */
export function exitThrough(proxy: string, source: string, url: string): Promise<string> {
  return getThrough(proxy, url, `me-source-${source}:x`);
}
