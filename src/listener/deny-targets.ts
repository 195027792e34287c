/**
 * Checks targets against `denyTargets`. Targets are in canonical form (core/host-port.ts), so `2130706433` and
 * `[::ffff:127.0.0.1]` are compared as the addresses that they mean. noria does not resolve names; members do, so a
 * name of a private address cannot lead into noria's own network.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { HostPort } from '../core/host-port.ts';
import { isOwnName, ownNames } from '../core/listen-address.ts';
import { isPrivateAddress, Networks } from '../core/networks.ts';
import { parseTargetRule, type TargetRule } from '../core/target-rule.ts';

const SMTP_PORTS: readonly number[] = [25, 465, 587];
/** Names of this machine or network: RFC 6761 §6.3, RFC 6762 §3, ICANN's .internal. */
const PRIVATE_SUFFIXES = ['.localhost', '.local', '.internal'];
/** Clients request the same few targets, and a check of an address costs as much as choosing a member. */
const MAX_CACHED_TARGETS = 1_024;
const ALLOWED = '';

export class DenyTargets {
  readonly #private: boolean;
  readonly #ownNames = ownNames();
  readonly #hosts: ReadonlySet<string>;
  readonly #suffixes: readonly string[];
  readonly #networks: Networks;
  readonly #ports: readonly { readonly from: number; readonly to: number }[];
  readonly #reasons = new BoundedMap<string, string>(MAX_CACHED_TARGETS);

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
    this.#ports = parsed.flatMap((rule) => {
      if (rule.kind === 'smtp') return SMTP_PORTS.map((port) => ({ from: port, to: port }));
      return rule.kind === 'ports' ? [rule] : [];
    });
  }

  /** The text is for the client and does not reveal the rule. */
  reasonToDeny(target: HostPort): string | undefined {
    let reason = this.#reasons.get(target.text);
    if (reason === undefined) {
      reason = this.#check(target) ?? ALLOWED;
      this.#reasons.set(target.text, reason);
    }
    return reason === ALLOWED ? undefined : reason;
  }

  #check(target: HostPort): string | undefined {
    if (this.#ports.some(({ from, to }) => target.port >= from && target.port <= to)) {
      return 'the port of the target is in denyTargets';
    }
    if (target.kind !== 'name') {
      if (this.#networks.hasOrEmbeds(target.host)) return 'the network of the target is in denyTargets';
      const isPrivate = this.#private && isPrivateAddress(target.host);
      return isPrivate ? 'the target is a private address, which denyTargets excludes' : undefined;
    }
    if (this.#hosts.has(target.host)) return 'the host of the target is in denyTargets';
    if (this.#suffixes.some((suffix) => target.host.endsWith(suffix))) {
      return 'the domain of the target is in denyTargets';
    }
    const isPrivate = this.#private && isPrivateName(target.host, this.#ownNames);
    return isPrivate
      ? 'the target is a name of this machine or its network, which denyTargets excludes'
      : undefined;
  }
}

function isPrivateName(name: string, own: ReadonlySet<string>): boolean {
  return isOwnName(name, own) || PRIVATE_SUFFIXES.some((suffix) => name.endsWith(suffix));
}
