/**
 * Which targets a listener refuses: the rules of `denyTargets`, made ready once, asked for every request.
 *
 * Targets come in canonical form (core/host-port.ts), so that `2130706433` and `[::ffff:127.0.0.1]` are the addresses
 * they stand for. Names are not resolved: a name of a private address resolves at the member, and so never reaches our
 * network.
 */
import { networkInterfaces } from 'node:os';
import type { HostPort } from '../core/host-port.ts';
import { embeddedIpv4, isLoopbackAddress, isPrivateAddress, Networks } from '../core/networks.ts';
import { parseTargetRule, type TargetRule } from '../core/target-rule.ts';

/** Ports that mail is handed in on. */
const SMTP_PORTS: readonly number[] = [25, 465, 587];
/** Names that mean this machine or this network: RFC 6761 §6.3, RFC 6762 §3, ICANN's .internal, and what hosts files say. */
const LOCALHOST_NAMES = ['localhost', 'localhost.localdomain', 'ip6-localhost', 'ip6-loopback'];
const PRIVATE_SUFFIXES = ['.localhost', '.local', '.internal'];

/** The rules of one listener. */
export class DenyTargets {
  readonly #private: boolean;
  readonly #hosts: ReadonlySet<string>;
  readonly #suffixes: readonly string[];
  readonly #networks: Networks;
  readonly #ports: readonly { readonly from: number; readonly to: number }[];

  /** @param rules - each as core/target-rule.ts reads it; anything else throws `TypeError`. */
  constructor(rules: readonly string[]) {
    const parsed = rules.map((text) => {
      const rule = parseTargetRule(text);
      if (rule === undefined) throw new TypeError(`not a rule of denyTargets: ${text}`);
      return rule;
    });
    const texts = (kind: TargetRule['kind']) =>
      parsed.flatMap((rule) => ('text' in rule && rule.kind === kind ? [rule.text] : []));
    this.#private = parsed.some((rule) => rule.kind === 'private');
    this.#hosts = new Set(texts('host'));
    this.#suffixes = texts('below').map((name) => `.${name}`);
    this.#networks = new Networks(texts('network'));
    this.#ports = [
      ...parsed.flatMap((rule) => (rule.kind === 'ports' ? [rule] : [])),
      ...(parsed.some((rule) => rule.kind === 'smtp')
        ? SMTP_PORTS.map((port) => ({ from: port, to: port }))
        : []),
    ];
  }

  /** What refuses this target, in a few words that tell the kind of rule and not what it says; undefined: nothing. */
  reasonToDeny(target: HostPort): string | undefined {
    if (this.#ports.some(({ from, to }) => target.port >= from && target.port <= to)) {
      return 'by its port';
    }
    if (target.kind !== 'name') {
      if (this.#networks.has(target.host)) return 'by its network';
      return this.#private && isPrivateAddress(target.host) ? 'as a private address' : undefined;
    }
    if (this.#hosts.has(target.host)) return 'by its name';
    if (this.#suffixes.some((suffix) => target.host.endsWith(suffix))) return 'by a pattern of names';
    return this.#private && isPrivateName(target.host) ? 'as a name of this machine or network' : undefined;
  }
}

/** An address that noria itself listens on. */
export interface OwnAddress {
  /** As bound: an IP literal, or `0.0.0.0` or `::` for every one of this machine. */
  readonly address: string;
  readonly port: number;
}

/**
 * Whether a target is one of noria's own listeners or its admin address: no rule of an operator opens these, since a
 * client could reach the admin API through the proxy, or send noria in circles.
 */
export function isOwnAddress(target: HostPort, own: readonly OwnAddress[]): boolean {
  return own.some(({ address, port }) => {
    if (port !== target.port) return false;
    if (target.kind === 'name') return isLocalhostName(target.host);
    const host = embeddedIpv4(target.host) ?? target.host; // [::ffff:192.0.2.1] is 192.0.2.1
    if (host === address) return true;
    const wildcard = address === '0.0.0.0' || address === '::';
    // The whole of 127/8 and the wildcards as targets end on this machine, wherever exactly noria is bound.
    const here = isLoopbackAddress(target.host) || host === '0.0.0.0'; // of :: too
    return here ? wildcard || isLoopbackAddress(address) : wildcard && isInterfaceAddress(host);
  });
}

function isLocalhostName(name: string): boolean {
  return LOCALHOST_NAMES.includes(name) || name.endsWith('.localhost');
}

function isPrivateName(name: string): boolean {
  return isLocalhostName(name) || PRIVATE_SUFFIXES.some((suffix) => name.endsWith(suffix));
}

/** Asked only when the port is ours, so that reading the interfaces each time costs nobody anything. */
function isInterfaceAddress(address: string): boolean {
  return Object.values(networkInterfaces()).some((list) => list?.some((each) => each.address === address));
}
