/** Requests the site of the active check through a member, and reads only the status of its response. */
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Deadlines } from '../core/deadlines.ts';
import { type HostPort, parseHostPort } from '../core/host-port.ts';
import type { RawConnection } from '../dialer/attempt-contract.ts';
import { MAX_RESPONSE_HEAD_BYTES, readResponseHead } from '../dialer/connect-handshake.ts';

export interface CheckSite {
  readonly target: HostPort;
  /** Whether the request uses TLS inside the tunnel. The check of the certificate then detects a man in the middle. */
  readonly tls: boolean;
  /** The URL for a request in absolute form, without a fragment. */
  readonly url: string;
  /** The value of the Host field. Omits the port if it is the default port (RFC 9110 §7.2). */
  readonly authority: string;
  readonly path: string;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** Reads the URL of a check; undefined if it is not an http or https URL with a host. */
export function readCheckSite(text: string): CheckSite | undefined {
  const url = URL.parse(text);
  const defaultPort = url === null ? undefined : DEFAULT_PORTS[url.protocol];
  if (url === null || defaultPort === undefined) return undefined;
  const target = parseHostPort(url.host, defaultPort);
  if (target === undefined) return undefined;
  url.hash = '';
  const path = `${url.pathname}${url.search}`;
  return { target, tls: url.protocol === 'https:', url: url.href, authority: url.host, path };
}

export type SiteAnswer = number | 'silent' | 'closed' | 'garbage';

/**
 * Resolves with the status of the response, or with the reason why there is no response. Always closes the connection.
 * Never rejects.
 */
export function askSite(
  connection: RawConnection,
  site: CheckSite,
  { deadlines, timeoutMs }: { readonly deadlines: Deadlines; readonly timeoutMs: number },
): Promise<SiteAnswer> {
  return new Promise((resolve) => {
    const socket = site.tls ? overTls(connection.socket, site.target) : connection.socket;
    let held = connection.early;
    const end = (answer: SiteAnswer) => {
      deadlines.clear(deadline);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.destroy(); // if the socket is a TLS socket, this also closes the TCP connection
      resolve(answer);
    };
    const deadline = deadlines.set(timeoutMs, () => end('silent'));
    const onEnd = () => end('closed');
    const onData = (bytes: Buffer) => {
      held = Buffer.concat([held, bytes]);
      const head = readResponseHead(held);
      if (head === 'garbage' || held.length > MAX_RESPONSE_HEAD_BYTES) end('garbage');
      else if (head !== 'more') end(head.status);
    };
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    socket.write(requestFor(site, connection), 'latin1');
    socket.resume();
  });
}

function overTls(socket: Socket, { host, kind }: HostPort): Socket {
  const tls = connectTls({ socket, ...(kind === 'name' ? { servername: host } : {}) });
  return tls.on('error', () => {}); // ignored: 'close' follows every error, and its handler ends the request
}

function requestFor({ authority, url, path }: CheckSite, { forwardMode, login }: RawConnection): string {
  const absolute = forwardMode === 'absolute';
  const credentials = absolute ? login?.authorization.reveal() : undefined;
  const lines = [
    `GET ${absolute ? url : path} HTTP/1.1`,
    `Host: ${authority}`,
    'Accept: */*',
    'Connection: close',
    ...(credentials === undefined ? [] : [`Proxy-Authorization: ${credentials}`]),
  ];
  return `${lines.join('\r\n')}\r\n\r\n`;
}
