/**
 * Decides which addresses are not public: loopback, private, link-local and reserved addresses, and IPv6 addresses that
 * contain one of these IPv4 addresses. Used for the addresses of members and for targets of clients.
 *
 * Source: IANA special-purpose registries. Some IPv6 addresses contain IPv4 addresses: addresses of NAT64 (RFC 6052),
 * 6to4 (RFC 3056), Teredo (RFC 4380) and ISATAP (RFC 5214), and IPv4-compatible addresses. An IPv6 address is private
 * if one of the IPv4 addresses in it is private. `net.BlockList` looks for an IPv4 address only in IPv4-mapped
 * addresses.
 */
import { BlockList, isIP, isIPv6 } from 'node:net';

export const PRIVATE_NETWORKS = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '::/128',
  '::1/128',
  '64:ff9b:1::/48',
  '100::/64',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
] as const;

export class Networks {
  readonly #list = new BlockList();

  /** @throws TypeError for a text that `isCidr` rejects. */
  constructor(cidrs: readonly string[]) {
    for (const cidr of cidrs) {
      const parsed = parseCidr(cidr);
      if (parsed === undefined) throw new TypeError(`not a network: ${cidr}`);
      this.#list.addSubnet(parsed.address, parsed.bits, parsed.family);
    }
  }

  /** @param address - an IP literal without brackets; its zone is ignored. For any other text the result is false. */
  has(address: string): boolean {
    const version = isIP(address);
    return version !== 0 && this.#list.check(address, version === 4 ? 'ipv4' : 'ipv6');
  }

  /**
   * Whether the networks contain the address or an IPv4 address inside it. Use it only to refuse addresses, never to
   * allow them: the owner of an IPv6 network can embed any IPv4 address in its own addresses.
   */
  hasOrEmbeds(address: string): boolean {
    return this.has(address) || embeddedIpv4(address).some((embedded) => this.#list.check(embedded, 'ipv4'));
  }
}

const PRIVATE = new Networks(PRIVATE_NETWORKS);
const LOOPBACK = new Networks(['127.0.0.0/8', '::1/128']);

export function isPrivateAddress(address: string): boolean {
  return PRIVATE.hasOrEmbeds(address);
}

export function isLoopbackAddress(address: string): boolean {
  return LOOPBACK.has(address);
}

export function isCidr(text: string): boolean {
  return parseCidr(text) !== undefined;
}

function parseCidr(text: string): { address: string; bits: number; family: 'ipv4' | 'ipv6' } | undefined {
  const [address = '', bitsText, ...rest] = text.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0 || address.includes('%')) return undefined;
  const most = version === 4 ? 32 : 128;
  if (bitsText !== undefined && !/^\d{1,3}$/.test(bitsText)) return undefined;
  const bits = bitsText === undefined ? most : Number(bitsText);
  if (bits > most) return undefined;
  return { address, bits, family: version === 4 ? 'ipv4' : 'ipv6' };
}

/** The IPv4 addresses inside an IPv4-mapped, IPv4-compatible, NAT64, 6to4, ISATAP or Teredo address. */
export function embeddedIpv4(address: string): readonly string[] {
  const groups = ipv6Groups(address);
  if (groups === undefined) return [];
  const at = (index: number) => groups[index] ?? 0;
  const quad = (high: number, low: number) => `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;
  const zeros = (count: number) => groups.slice(0, count).every((group) => group === 0);
  const last = quad(at(6), at(7));
  if (zeros(5) && at(5) === 0xffff) return [last]; // IPv4-mapped, ::ffff:0:0/96
  if (zeros(4) && at(4) === 0xffff && at(5) === 0) return [last]; // IPv4-translated, ::ffff:0:0:0/96 (RFC 2765)
  if (zeros(6)) return [last]; // IPv4-compatible, ::/96
  if (at(0) === 0x64 && at(1) === 0xff9b) return [last]; // NAT64, 64:ff9b::/96 (RFC 6052)
  const isIsatap = (at(4) === 0 || at(4) === 0x200) && at(5) === 0x5efe;
  const inner = isIsatap ? [last] : [];
  if (at(0) === 0x2002) return [quad(at(1), at(2)), ...inner]; // 6to4, 2002::/16
  // Teredo, 2001::/32: the addresses of the server and of the client, the latter with inverted bits.
  if (at(0) === 0x2001 && at(1) === 0) return [quad(at(2), at(3)), quad(~at(6) & 0xffff, ~at(7) & 0xffff)];
  return inner;
}

/** What noria counts as one client: an IPv4 address, or the /64 of an IPv6 address, which one customer usually has. */
export function clientNetwork(address: string): string {
  const groups = ipv6Groups(address);
  if (groups === undefined) return address;
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return embeddedIpv4(address)[0] ?? address;
  }
  const prefix = groups.slice(0, 4).map((group) => group.toString(16));
  return `${prefix.join(':')}::/64`;
}

function ipv6Groups(address: string): number[] | undefined {
  if (!isIPv6(address)) return undefined;
  const bare = address.replace(/%.*/s, '');
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(bare);
  const hex =
    dotted === null
      ? bare
      : `${dotted[1]}${((Number(dotted[2]) << 8) | Number(dotted[3])).toString(16)}:${((Number(dotted[4]) << 8) | Number(dotted[5])).toString(16)}`;
  const [head = '', tail] = hex.split('::');
  const read = (part: string) =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const left = read(head);
  if (tail === undefined) return left;
  const right = read(tail);
  return [...left, ...new Array<number>(8 - left.length - right.length).fill(0), ...right];
}
