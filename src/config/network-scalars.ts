/** The types of scalar values for the network: URLs, addresses, ports, networks and rules for targets. */
import { type FrontProxy, formatFrontProxy, readFrontProxy } from '../core/front-proxy.ts';
import { formatListenAddress, type ListenAddress, readListenAddress } from '../core/listen-address.ts';
import { nearest } from '../core/nearest.ts';
import { isCidr } from '../core/networks.ts';
import { parseTargetRule, TARGET_SETS, wrongTargetRule } from '../core/target-rule.ts';
import { type Reading, type Scalar, scalar } from './scalars.ts';

/** An http or https URL without credentials, query and fragment. In the Config, it has no trailing slash. */
export function baseAddress(): Scalar<string> {
  return scalar({
    expected: 'an http:// or https:// URL without user name, password, query and fragment',
    example: 'http://extract.example.com',
    json: { type: 'string', pattern: '^https?://' },
    quoted: 'valid',
    read(given) {
      const url = readUrl(given);
      if ('wrong' in url) return url;
      if (url.value.search + url.value.hash !== '') return { wrong: 'has a query or a fragment' };
      return { value: url.value.origin + url.value.pathname.replace(/^((?:\/+[^/]+)*)\/*$/, '$1') };
    },
    write: (value) => value,
  });
}

export function pageAddress(): Scalar<string> {
  return scalar({
    expected: 'an http:// or https:// URL without user name and password',
    example: 'http://example.com/',
    json: { type: 'string', pattern: '^https?://' },
    quoted: 'valid',
    read(given) {
      const url = readUrl(given);
      return 'wrong' in url ? url : { value: url.value.href };
    },
    write: (value) => value,
  });
}

export function readUrl(given: string): Reading<URL> {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    return { wrong: 'is not an http:// or https:// URL' };
  }
  return url.username + url.password === ''
    ? { value: url }
    : { wrong: 'contains a user name or a password' };
}

/** The URL of a front proxy, which may contain a password. */
export function frontProxy(): Scalar<FrontProxy> {
  return scalar({
    expected: 'http://host:port or socks5://host:port, with user:password@ before the host if needed',
    example: 'http://user:${VIA_PASSWORD}@bastion:3128',
    json: { type: 'string', pattern: '^(http|socks5h?)://' },
    quoted: 'never',
    read: readFrontProxy,
    write: formatFrontProxy,
  });
}

/** An address to listen on. `one`: with a single port. `range`: also with a port range, or an inherited socket. */
export function listenAddress(ports: 'one' | 'range'): Scalar<ListenAddress> {
  return scalar({
    expected:
      ports === 'range'
        ? 'host:port, [v6]:port, host:24000-24019 (a port range) or fd:3 (an inherited socket)'
        : 'host:port or [v6]:port',
    example: '127.0.0.1:8888',
    json: { type: 'string' },
    quoted: 'always',
    read(given) {
      const reading = readListenAddress(given);
      if ('wrong' in reading || ports === 'range') return reading;
      const { value } = reading;
      if (value.kind === 'fd') return { wrong: 'is an inherited socket' };
      return value.lastPort === value.port ? reading : { wrong: 'has more than one port' };
    },
    write: formatListenAddress,
  });
}

export interface PortNumbers {
  readonly first: number;
  readonly last: number;
}

export function portNumbers(): Scalar<PortNumbers> {
  return scalar<PortNumbers>({
    expected: 'a range of ports such as 24000-24019, or one port',
    json: { type: ['string', 'integer'], pattern: '^[0-9]+(-[0-9]+)?$' },
    quoted: 'always',
    read(given) {
      const reading = readListenAddress(`127.0.0.1:${given}`);
      if ('wrong' in reading)
        return /^\d+(-\d+)?$/.test(given) ? reading : { wrong: 'is not a range of ports' };
      const { value } = reading;
      if (value.kind === 'fd' || value.port === 0) return { wrong: 'has the port 0' };
      return { value: { first: value.port, last: value.lastPort ?? value.port } };
    },
    write: ({ first, last }) => (first === last ? String(first) : `${first}-${last}`),
  });
}

export function network(): Scalar<string> {
  return scalar({
    expected: 'a network in CIDR form, or an address',
    example: '192.0.2.0/24',
    json: { type: 'string' },
    quoted: 'always',
    read: (given) => (isCidr(given) ? { value: given } : { wrong: 'is neither a network nor an address' }),
    write: (value) => value,
  });
}

/** A rule for targets that a listener refuses. core/target-rule.ts defines the grammar. */
export function denyTarget(): Scalar<string> {
  return scalar({
    expected:
      'private, smtp, a host, a pattern such as *.example.com, a network in CIDR form, or ports such as :25 or :6000-6010',
    json: { type: 'string' },
    quoted: 'always',
    read(given) {
      const rule = parseTargetRule(given);
      if (rule === undefined) return { wrong: wrongTargetRule(given) };
      // `privat` is a valid host name, but probably means `private`. So noria rejects words that are similar to
      // `private` or `smtp`.
      const meant = rule.kind === 'host' && !given.includes('.') ? nearest(given, TARGET_SETS) : undefined;
      return meant === undefined
        ? { value: given }
        : { wrong: `is not a known set (did you mean ${meant}?)` };
    },
    write: (value) => value,
  });
}
