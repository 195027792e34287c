/**
 * The front proxy (`via`): a proxy of the operator's organisation, through which noria reaches the service or the
 * members.
 */
import { randomBytes } from 'node:crypto';
import { formatHostPort, hostPort } from './host-port.ts';
import type { BoundAddress } from './listen-address.ts';
import { type Login, MASK, Secret } from './secret.ts';

export interface FrontProxy {
  readonly protocol: 'http' | 'socks5';
  /** The canonical host, without brackets. If the host is a name, this machine resolves the name. */
  readonly host: string;
  readonly port: number;
  readonly login?: Login;
}

export interface LoopGuard {
  /** The name of this noria in the field Via, the same in all its processes and in no other noria. */
  readonly mark: string;
  ownAddresses(): readonly BoundAddress[];
}

const MARK = /\bnoria-[0-9a-f]{16}\b/g;

export function makeMark(): string {
  return `noria-${randomBytes(8).toString('hex')}`;
}

/** A noria that finds its own mark in the Via of a CONNECT refuses the request with the fault `proxy-loop`. */
export function readMarks(via: readonly string[]): readonly string[] | undefined {
  if (via.length === 0) return undefined;
  const marks = via.flatMap((value) => value.match(MARK) ?? []);
  return marks.length === 0 ? undefined : marks;
}

/** The field Via of a CONNECT to a front proxy, with its line end (RFC 9110 §7.6.3). */
export function formatMarks(marks: readonly string[]): string {
  return `Via: ${marks.map((mark) => `1.1 ${mark}`).join(', ')}\r\n`;
}

/** `socks5h` is curl's name for a SOCKS5 proxy that resolves host names; noria lets every SOCKS5 proxy resolve host names. */
const PROTOCOLS: ReadonlyMap<string, FrontProxy['protocol']> = new Map([
  ['http', 'http'],
  ['socks5', 'socks5'],
  ['socks5h', 'socks5'],
]);
const DEFAULT_PORTS: Readonly<Record<FrontProxy['protocol'], number>> = { http: 80, socks5: 1080 };
const MAX_LOGIN_BYTES = 255;

/** `wrong` follows the name of the key, and does not quote the URL, which may contain a password. */
export function readFrontProxy(text: string): { readonly value: FrontProxy } | { readonly wrong: string } {
  const [, scheme = ''] = /^([a-z0-9]+):\/\//i.exec(text) ?? [];
  const protocol = PROTOCOLS.get(scheme.toLowerCase());
  if (protocol === undefined) return { wrong: 'does not begin with http:// or socks5://' };
  // Parses the URL as http: the URL standard applies its rules for host, user name and password only to known schemes.
  const address = `http://${text.slice(scheme.length + '://'.length)}`;
  if (!URL.canParse(address)) return { wrong: 'is not a URL' };
  const url = new URL(address);
  if (url.pathname !== '/' || url.search + url.hash !== '')
    return { wrong: 'has a path, a query or a fragment' };
  const givenPort = /:(\d+)\/?$/.exec(address)?.[1]; // read from the text, because `url.port` is empty for port 80
  const server = hostPort(
    url.hostname.replace(/^\[|\]$/g, ''),
    givenPort === undefined ? DEFAULT_PORTS[protocol] : Number(givenPort),
  );
  if (server === undefined) return { wrong: 'has an invalid host or port' };
  const { host, port } = server;
  if (url.username + url.password === '') return { value: { protocol, host, port } };
  const login = readLogin(url);
  return 'wrong' in login ? login : { value: { protocol, host, port, login } };
}

export function formatFrontProxy({ protocol, host, port, login }: FrontProxy): string {
  const user = login === undefined ? '' : `${encodeURIComponent(login.username)}:${MASK}@`;
  return `${protocol}://${user}${formatHostPort(host, port)}`;
}

function readLogin({ username, password }: URL): Login | { readonly wrong: string } {
  if (username === '') return { wrong: 'has a password without a user name' };
  if (password === '') return { wrong: 'has a user name without a password' };
  try {
    const [name, secret] = [decodeURIComponent(username), decodeURIComponent(password)];
    const isTooLong = [name, secret].some((part) => Buffer.byteLength(part) > MAX_LOGIN_BYTES);
    if (isTooLong) return { wrong: `has a user name or a password of more than ${MAX_LOGIN_BYTES} bytes` };
    if (/[\p{Cc}]/u.test(name + secret) || name.includes(':')) {
      return { wrong: 'has a control character, or a colon in its user name' };
    }
    return { username: name, password: new Secret(secret) };
  } catch {
    return { wrong: 'has a % that is not part of an encoded character; write %25 for it' }; // handled: bad encoding
  }
}
