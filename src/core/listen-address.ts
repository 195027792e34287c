/**
 * The address on which a server listens: its grammar (`host:port`, `[v6]:port`, `host:24000-24019` or `fd:3`), and
 * comparisons of addresses, also with noria's own.
 */
import { hostname, networkInterfaces } from 'node:os';
import { describeError, errnoOf, NoriaError } from './faults.ts';
import { formatHostPort, type HostPort, hostPort } from './host-port.ts';
import { embeddedIpv4, isLoopbackAddress } from './networks.ts';

export type ListenAddress =
  /**
   * The host is canonical, without brackets. With port 0, the system chooses a free port. `lastPort` is the last port of
   * a range; for a single port, it is absent or equal to `port`.
   */
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly lastPort?: number }
  /** A listening socket that noria inherits from the process that started it (socket activation). */
  | { readonly kind: 'fd'; readonly fd: number };

export interface BoundAddress {
  /** An IP literal without brackets; '' for a Unix socket. */
  readonly host: string;
  readonly port: number;
}

const WILDCARDS: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);
const LOOPBACK_NAMES = [
  'localhost',
  'localhost.localdomain',
  'localhost4',
  'localhost4.localdomain4',
  'localhost6',
  'localhost6.localdomain6',
  'ip6-localhost',
  'ip6-loopback',
];
/** The lower numbers are the standard streams. */
const FIRST_FD = 3;
const MAX_RANGE = 1000;
const MAX_PORT = 65_535;
/** `hostPort` rejects port 0. */
const ANY_PORT = 1;

export function readListenAddress(
  text: string,
): { readonly value: ListenAddress } | { readonly wrong: string } {
  const fd = /^fd:(\d{1,4})$/.exec(text)?.[1];
  if (fd !== undefined) {
    return Number(fd) < FIRST_FD
      ? { wrong: `is a standard stream; inherited sockets begin at fd:${FIRST_FD}` }
      : { value: { kind: 'fd', fd: Number(fd) } };
  }
  const [, hostText, firstText, lastText] = /^(.*):(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  if (hostText === undefined) return { wrong: describeMissingPort(text) };
  if (hostText === '') return { wrong: 'has no host before its port' };
  const host = readHost(hostText);
  if (host === undefined) return { wrong: 'has an invalid host' };
  const port = Number(firstText);
  const lastPort = Number(lastText ?? firstText);
  const wrong = wrongPorts(port, lastPort);
  return wrong === undefined ? { value: { kind: 'tcp', host, port, lastPort } } : { wrong };
}

/** Empty for an inherited socket, whose address is unknown. */
export function boundAddresses(address: ListenAddress): BoundAddress[] {
  if (address.kind === 'fd') return [];
  const { host, port, lastPort = port } = address;
  const boundHost = host === 'localhost' ? '127.0.0.1' : host;
  return Array.from({ length: lastPort - port + 1 }, (_, index) => ({ host: boundHost, port: port + index }));
}

export function formatListenAddress(address: ListenAddress): string {
  if (address.kind === 'fd') return `fd:${address.fd}`;
  const { host, port, lastPort = port } = address;
  return formatHostPort(host, port) + (lastPort === port ? '' : `-${lastPort}`);
}

/** True for an inherited socket, whose address is unknown until noria opens it. */
export function isLocalAddress(address: ListenAddress): boolean {
  return address.kind === 'fd' || address.host === 'localhost' || isLoopbackAddress(address.host);
}

/** The host at which a client on this machine reaches a server on `host`: loopback if `host` is a wildcard. */
export function localHostOf(host: string): string {
  return WILDCARDS.get(host) ?? host;
}

/** Whether a server that listens on one address prevents a server on the other address. Port 0 never conflicts. */
export function overlap(one: ListenAddress, other: ListenAddress): boolean {
  if (one.kind === 'fd' || other.kind === 'fd') {
    return one.kind === 'fd' && other.kind === 'fd' && one.fd === other.fd;
  }
  const { port, lastPort = port } = one;
  const { port: otherPort, lastPort: otherLastPort = otherPort } = other;
  const sharePort = port <= otherLastPort && otherPort <= lastPort;
  return sharePort && port !== 0 && otherPort !== 0 && shareHost(one.host, other.host);
}

function shareHost(one: string, other: string): boolean {
  const hosts = [one, other];
  if (one === other || hosts.includes('::')) return true; // a server on `::` also accepts IPv4 connections
  if (hosts.includes('0.0.0.0')) return !hosts.some((host) => host.includes(':'));
  return hosts.includes('localhost') && hosts.some((host) => host === '127.0.0.1' || host === '::1');
}

function readHost(text: string): string | undefined {
  const bracketed = /^\[([^[\]]*)\]$/.exec(text)?.[1];
  if (bracketed === undefined && text.includes(':')) return undefined;
  const read = hostPort(bracketed ?? text, ANY_PORT);
  return bracketed !== undefined && read?.kind !== 'ipv6' ? undefined : read?.host;
}

function describeMissingPort(text: string): string {
  if (/^\d{1,5}$/.test(text)) return 'has no host before its port';
  return text.includes(':') ? 'has a port that is not a number' : 'has no port';
}

function wrongPorts(first: number, last: number): string | undefined {
  if (first > MAX_PORT || last > MAX_PORT) return `has a port above ${MAX_PORT}`;
  if (last < first) return 'has a port range that ends before it begins';
  if (first === 0 && last > 0) return 'has a port range that begins at 0';
  return last - first >= MAX_RANGE ? `has a range of more than ${MAX_RANGE} ports` : undefined;
}

/** noria refuses such a target: a client could reach the admin API through the proxy, or create a proxy loop. */
export function isOwnAddress(target: HostPort, own: readonly BoundAddress[]): boolean {
  return own.some(({ host: address, port }) => {
    if (port !== target.port) return false;
    if (target.kind === 'name') return isOwnName(target.host, ownNames());
    // An IPv6 address with an embedded IPv4 address leads to the embedded address: [::ffff:192.0.2.1] to 192.0.2.1.
    return [target.host, ...embeddedIpv4(target.host)].some((host) => reaches(host, address));
  });
}

/** Unlike `isOwnAddress`, it distinguishes loopback addresses: noria on 127.0.0.1 is no member at 127.0.0.2. */
export function isOwnMember(member: HostPort, own: readonly BoundAddress[]): boolean {
  const isOther = (address: string) =>
    [member.host, address].every((host) => host.startsWith('127.')) && member.host !== address;
  return isOwnAddress(
    member,
    own.filter(({ host }) => !isOther(host)),
  );
}

function reaches(host: string, address: string): boolean {
  if (host === address) return true;
  const wildcard = address === '0.0.0.0' || address === '::';
  // For a target, 127.0.0.0/8, ::1 and the wildcard addresses all mean this machine. `embeddedIpv4` maps :: to 0.0.0.0.
  const isLocal = isLoopbackAddress(host) || host === '0.0.0.0';
  return isLocal ? wildcard || isLoopbackAddress(address) : wildcard && isInterfaceAddress(host);
}

export function ownNames(): ReadonlySet<string> {
  const name = hostname().toLowerCase();
  return new Set([...LOOPBACK_NAMES, name, name.replace(/\..*$/s, '')]);
}

export function isOwnName(name: string, own: ReadonlySet<string>): boolean {
  return own.has(name) || name.endsWith('.localhost');
}

/** Whether a network interface of this machine has the address. Slow, because each call reads all interfaces. */
function isInterfaceAddress(address: string): boolean {
  return Object.values(networkInterfaces()).some((list) => list?.some((each) => each.address === address));
}

const LISTEN_FAILURES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there (address in use); stop it, or choose another port',
  EADDRNOTAVAIL: 'this machine has no such address; use 127.0.0.1, or an address that `ip address` shows',
  EAFNOSUPPORT: 'this machine has no IPv6; use an IPv4 address such as 127.0.0.1',
  EACCES:
    'permission denied for the user that runs noria; choose a port above 1023, or grant CAP_NET_BIND_SERVICE',
  ENOTFOUND: 'the host name does not exist; use an IP address',
  EBADF: 'no such file descriptor was inherited; start noria through a systemd socket unit',
  EINVAL: 'the file descriptor is not a listening socket; check the systemd socket unit',
  ENOTSOCK: 'the file descriptor is not a listening socket; check the systemd socket unit',
};

export function listenFailure(where: string, cause: unknown): NoriaError {
  const errno = errnoOf(cause) ?? '';
  const reason = Object.hasOwn(LISTEN_FAILURES, errno) ? LISTEN_FAILURES[errno] : describeError(cause);
  return new NoriaError('listen-failed', `cannot listen on ${where}: ${reason}`, { cause });
}

export function hasPorts(
  address: ListenAddress,
  { first, last }: { readonly first: number; readonly last: number },
): boolean {
  if (address.kind === 'fd') return false;
  return address.port <= first && last <= (address.lastPort ?? address.port);
}
