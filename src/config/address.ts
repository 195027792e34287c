/** Addresses to listen on: `host:port`, `[v6]:port`, `host:24000-24019`, `fd:3`. Pure. */
import { formatHostPort, hostPort } from '../core/host-port.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import type { Address } from './config.ts';
import type { Kind, Reading } from './kinds.ts';

const FIRST_FD = 3;
/** Each port is a server of its own. */
const MAX_RANGE = 1000;
const MAX_PORT = 65_535;
/** Only to have the host judged where the port is 0. */
const ANY_PORT = 1;

/** The kind of an address to listen on; `one`: neither a range of ports nor a socket handed over will do. */
export function address(ports: 'one' | 'range'): Kind<Address> {
  return {
    wants:
      ports === 'range'
        ? 'host:port, [v6]:port, host:24000-24019 (a port range) or fd:3 (a socket handed over)'
        : 'host:port or [v6]:port',
    good: '127.0.0.1:8888',
    json: { type: 'string' },
    shown: 'always',
    read(given) {
      const reading = readAddress(given);
      if ('wrong' in reading || ports === 'range') return reading;
      const { value } = reading;
      if (value.kind === 'fd') return { wrong: 'is a socket handed over' };
      return value.lastPort === value.port ? reading : { wrong: 'has more than one port' };
    },
    write: formatAddress,
  };
}

function readAddress(text: string): Reading<Address> {
  const fd = /^fd:(\d{1,4})$/.exec(text)?.[1];
  if (fd !== undefined) {
    return Number(fd) < FIRST_FD
      ? { wrong: `names a standard stream; sockets that are handed over begin at fd:${FIRST_FD}` }
      : { value: { kind: 'fd', fd: Number(fd) } };
  }
  const [, hostText, firstText, lastText] = /^(.*):(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  if (hostText === undefined) return { wrong: withoutPort(text) };
  if (hostText === '') return { wrong: 'has no host before its port' };
  const host = readHost(hostText);
  if (host === undefined) return { wrong: 'has a host that cannot be read' };
  const port = Number(firstText);
  const lastPort = Number(lastText ?? firstText);
  const wrong = wrongPorts(port, lastPort);
  return wrong === undefined ? { value: { kind: 'tcp', host, port, lastPort } } : { wrong };
}

/** The text that `readAddress` reads as this address. */
export function formatAddress(address: Address): string {
  if (address.kind === 'fd') return `fd:${address.fd}`;
  const range = address.lastPort === address.port ? '' : `-${address.lastPort}`;
  return formatHostPort(address.host, address.port) + range;
}

/**
 * Whether only this machine can reach the address.
 *
 * Of a socket that was handed over nothing is known before it is opened: whoever opens it has to ask again.
 */
export function isLocalAddress(address: Address): boolean {
  return address.kind === 'fd' || address.host === 'localhost' || isLoopbackAddress(address.host);
}

/** Whether both cannot be listened on at once. A port of 0 is never in anyone's way. */
export function overlap(one: Address, other: Address): boolean {
  if (one.kind === 'fd' || other.kind === 'fd') {
    return one.kind === 'fd' && other.kind === 'fd' && one.fd === other.fd;
  }
  const ports = one.port <= other.lastPort && other.port <= one.lastPort;
  return ports && one.port !== 0 && other.port !== 0 && sameHost(one.host, other.host);
}

function sameHost(one: string, other: string): boolean {
  const hosts = [one, other];
  if (one === other || hosts.includes('::')) return true; // `::` takes IPv4 too
  if (hosts.includes('0.0.0.0')) return !hosts.some((host) => host.includes(':'));
  return hosts.includes('localhost') && hosts.some((host) => host === '127.0.0.1' || host === '::1');
}

function readHost(text: string): string | undefined {
  const bracketed = /^\[([^[\]]*)\]$/.exec(text)?.[1];
  if (bracketed === undefined && text.includes(':')) return undefined;
  const read = hostPort(bracketed ?? text, ANY_PORT);
  return bracketed !== undefined && read?.kind !== 'ipv6' ? undefined : read?.host;
}

function withoutPort(text: string): string {
  if (/^\d{1,5}$/.test(text)) return 'has no host before its port';
  return text.includes(':') ? 'has no port that is a number' : 'has no port';
}

function wrongPorts(first: number, last: number): string | undefined {
  if (first > MAX_PORT || last > MAX_PORT) return `has a port above ${MAX_PORT}`;
  if (last < first) return 'has a port range that ends before it begins';
  if (first === 0 && last > 0) return 'has a port range that begins at 0';
  return last - first >= MAX_RANGE ? `has a range of more than ${MAX_RANGE} ports` : undefined;
}
