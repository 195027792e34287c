/**
 * Asks the site of the active check through a way that stands, and looks at nothing but the status of its answer.
 */
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Deadlines } from '../core/deadlines.ts';
import { type HostPort, parseHostPort } from '../core/host-port.ts';
import type { RawConnection } from '../dialer/attempt.ts';
import { MAX_RESPONSE_HEAD_BYTES } from '../dialer/connect-handshake.ts';
import { readResponseHead } from '../dialer/connect-response.ts';

export interface CheckSite {
  readonly target: HostPort;
  /** TLS inside the tunnel; its certificate must fit, or somebody sits in between. */
  readonly tls: boolean;
  /** For a request in absolute form; without a fragment. */
  readonly url: string;
  /** For the Host field: the port only where it is not the default one (RFC 9110 §7.2). */
  readonly authority: string;
  /** Path and query. */
  readonly path: string;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** Reads the URL of a check; undefined when it is not an http or https URL with a host. */
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

/** The status of the site's answer, or why there is none. Closes the way in any case; never rejects. */
export function askSite(
  way: RawConnection,
  site: CheckSite,
  deadlines: Deadlines,
  timeoutMs: number,
): Promise<SiteAnswer> {
  return new Promise((resolve) => {
    const socket = site.tls ? overTls(way.socket, site.target) : way.socket;
    let held = way.head;
    const end = (outcome: SiteAnswer) => {
      deadlines.clear(deadline);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.destroy(); // TLS takes the connection below with it
      resolve(outcome);
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
    socket.write(requestOf(way, site), 'latin1');
    socket.resume();
  });
}

function overTls(socket: Socket, { host, kind }: HostPort): Socket {
  const tls = connectTls({ socket, ...(kind === 'name' ? { servername: host } : {}) });
  return tls.on('error', () => {}); // ignored: `close` follows, and says all that matters here
}

function requestOf({ forwardMode: form, login }: RawConnection, { authority, url, path }: CheckSite): string {
  const absolute = form === 'absolute';
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
