/** Networks and rules about targets, as `allow` and `denyTargets` of a listener take them. Pure. */
import { hostPort, parsePort } from '../core/host-port.ts';
import { nearest } from '../core/nearest.ts';
import { isCidr } from '../core/networks.ts';
import type { Kind } from './kinds.ts';

/** Sets of targets that have a name: what each holds stands in listener/deny-targets.ts. */
const NAMED_SETS = ['private', 'smtp'];
/** Only to have a host judged that stands without a port. */
const ANY_PORT = 1;

/** A network in CIDR form, or one address. */
export function network(): Kind<string> {
  return {
    wants: 'a network in CIDR form, or an address',
    good: '192.0.2.0/24',
    json: { type: 'string' },
    shown: 'always',
    read: (text) => (isCidr(text) ? { value: text } : { wrong: 'is neither a network nor an address' }),
    write: (value) => value,
  };
}

/** A target that a listener refuses. */
export function denyTarget(): Kind<string> {
  return {
    wants:
      'private, smtp, a host, a pattern such as *.example.com, a network in CIDR form, or a port such as :25',
    json: { type: 'string' },
    shown: 'always',
    read(text) {
      const wrong = NAMED_SETS.includes(text) || isCidr(text) ? undefined : wrongRule(text);
      return wrong === undefined ? { value: text } : { wrong };
    },
    write: (value) => value,
  };
}

function wrongRule(text: string): string | undefined {
  if (text.startsWith(':')) return wrongPorts(text.slice(1));
  if (/:\d+$/.test(text) && hostPort(text.replace(/:\d+$/, ''), ANY_PORT)?.kind === 'name') {
    return 'has a host and a port; give the one or the other';
  }
  const below = text.startsWith('*.');
  const host = hostPort(below ? text.slice(2) : text, ANY_PORT);
  if (host === undefined) return text.includes('/') ? 'is not a network' : 'is not a rule about targets';
  if (below && host.kind !== 'name') return 'is a pattern of an address; give a network in CIDR form';
  // A lone word is a host as well, so only what is nearly the name of a set is taken for a slip.
  const meant = text.includes('.') ? undefined : nearest(text, NAMED_SETS);
  return meant === undefined ? undefined : `is not a set of targets; did you mean ${meant}?`;
}

function wrongPorts(text: string): string | undefined {
  const [first = '', last = first, ...rest] = text.split('-');
  const from = parsePort(first);
  const to = parsePort(last);
  if (from === undefined || to === undefined || rest.length > 0) return 'is not a port from 1 to 65535';
  return to < from ? 'is a range that ends before it begins' : undefined;
}
