/**
 * The messages that a SOCKS client writes, as bytes. Each byte is named beside it.
 *
 * Sources: RFC 1928 (SOCKS5), RFC 1929 (its user names and passwords), the SOCKS4 and SOCKS4A memos of NEC and Ylönen.
 */
import type { HostPort } from '../core/host-port.ts';
import type { Login } from './handshake.ts';

export const SOCKS5_VERSION = 0x05;
export const NO_AUTHENTICATION = 0x00;
export const USERNAME_PASSWORD = 0x02;
export const NO_ACCEPTABLE_METHOD = 0xff;
export const ATYP_IPV4 = 0x01;
export const ATYP_NAME = 0x03;
export const ATYP_IPV6 = 0x04;
/** RFC 1929: user name and password are 1 to 255 bytes each; checked where they are configured. */
export const MAX_LOGIN_BYTES = 255;

const SOCKS4_VERSION = 0x04;
const CONNECT = 0x01;
const LOGIN_VERSION = 0x01;
/** Where a SOCKS4 address should stand: `0.0.0.x`, x not zero, tells that a name follows (SOCKS4A). */
const NAME_FOLLOWS = [0, 0, 0, 1];

/** Exactly one method, so that a server cannot choose the one that it refuses later. */
export const OFFER_NO_AUTHENTICATION = Buffer.from([SOCKS5_VERSION, 1, NO_AUTHENTICATION]);
export const OFFER_LOGIN = Buffer.from([SOCKS5_VERSION, 1, USERNAME_PASSWORD]);

/** RFC 1929 §2. */
export function loginMessage(login: Login): Buffer {
  const username = Buffer.from(login.username, 'utf8');
  const password = Buffer.from(login.password.reveal(), 'utf8');
  return Buffer.concat([
    Buffer.from([LOGIN_VERSION, username.length]),
    username,
    Buffer.from([password.length]),
    password,
  ]);
}

/** RFC 1928 §4, CONNECT. Names go as names: nothing is resolved here. */
export function socks5Request(target: HostPort): Buffer {
  const address = socks5Address(target);
  const request = Buffer.allocUnsafe(3 + address.length + 2);
  request[0] = SOCKS5_VERSION;
  request[1] = CONNECT;
  request[2] = 0; // RSV
  request.set(address, 3);
  request.writeUInt16BE(target.port, 3 + address.length);
  return request;
}

/** A SOCKS4 request, as SOCKS4A for a name; undefined for an IPv6 address, which neither can name. */
export function socks4Request(target: HostPort, userId: string): Buffer | undefined {
  if (target.kind === 'ipv6') return undefined;
  const named = target.kind === 'name';
  return Buffer.concat([
    Buffer.from([SOCKS4_VERSION, CONNECT, target.port >> 8, target.port & 0xff]),
    Buffer.from(named ? NAME_FOLLOWS : ipv4Bytes(target.host)),
    Buffer.from(`${userId}\0`, 'utf8'),
    Buffer.from(named ? `${target.host}\0` : '', 'latin1'),
  ]);
}

function socks5Address({ host, kind }: HostPort): Buffer {
  switch (kind) {
    case 'ipv4':
      return Buffer.from([ATYP_IPV4, ...ipv4Bytes(host)]);
    case 'ipv6':
      return Buffer.from([ATYP_IPV6, ...ipv6Bytes(host)]);
    case 'name': {
      const address = Buffer.allocUnsafe(2 + host.length); // an A-label: one byte a character, 253 at most
      address[0] = ATYP_NAME;
      address[1] = host.length;
      address.write(host, 2, 'latin1');
      return address;
    }
  }
}

function ipv4Bytes(host: string): number[] {
  return host.split('.').map(Number);
}

/** Of the canonical form, which is groups of hexadecimal digits with at most one `::`. */
function ipv6Bytes(host: string): number[] {
  const [left = '', right] = host.split('::');
  const groups = (part: string) =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const head = groups(left);
  const tail = right === undefined ? [] : groups(right);
  const zeros = new Array<number>(8 - head.length - tail.length).fill(0);
  return [...head, ...zeros, ...tail].flatMap((group) => [group >> 8, group & 0xff]);
}
