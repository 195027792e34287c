import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  clientNetwork,
  embeddedIpv4,
  isCidr,
  isLoopbackAddress,
  isPrivateAddress,
  Networks,
  PRIVATE_NETWORKS,
} from '../../src/core/networks.ts';

const PRIVATE: readonly string[] = [
  '0.0.0.0',
  '10.0.0.1',
  '100.64.0.1',
  '100.100.100.200', // a cloud's metadata address
  '127.0.0.1',
  '127.255.255.255',
  '169.254.169.254',
  '172.16.0.1',
  '172.31.255.255',
  '192.0.0.8',
  '192.168.1.1',
  '198.18.0.1',
  '198.19.255.255',
  '224.0.0.1',
  '255.255.255.255',
  '::',
  '::1',
  '::ffff:127.0.0.1',
  '::ffff:7f00:1',
  '::FFFF:10.0.0.1',
  '::127.0.0.1',
  '::ffff:0:169.254.169.254',
  '64:ff9b::7f00:1',
  '64:ff9b::10.0.0.1',
  '64:ff9b:1::808:808',
  '2002:7f00:1::',
  '2002:a9fe:a9fe::1',
  '2001:0:7f00:1::', // Teredo, by its server
  '2001:0:808:808:0:0:f5ff:fffe', // Teredo, by its client 10.0.0.1
  '2001:0:808:808:8000:1234:5601:5601', // 169.254.169.254
  '2001:db8::5efe:10.0.0.1', // ISATAP
  '2606:4700::200:5efe:127.0.0.1',
  'fe80::5efe:8.8.8.8',
  '100::1',
  'fc00::1',
  'fd00:ec2::254', // a cloud's metadata address
  'fe80::1',
  'fe80::1%eth0',
  'febf::1',
  'fec0::1',
  'ff02::1',
];

const PUBLIC: readonly string[] = [
  '1.1.1.1',
  '9.255.255.255',
  '100.63.255.255',
  '100.128.0.0',
  '172.15.255.255',
  '172.32.0.0',
  '192.0.1.1',
  '198.17.255.255',
  '198.20.0.0',
  '223.255.255.255',
  '::ffff:8.8.8.8',
  '64:ff9b::8.8.8.8',
  '2002:808:808::1',
  '2001:0:808:808:8000:1234:f7f7:f7f7', // 8.8.8.8 by way of 8.8.8.8
  '2606:4700::5efe:8.8.8.8',
  '2606:4700::100:5efe:10.0.0.1',
  '2001:1::f5ff:fffe',
  '2606:4700::1',
  '2a00::1',
];

describe('networks: addresses that are not public', () => {
  test.each(PRIVATE)('networks: %s is private', (address) => {
    expect(isPrivateAddress(address)).toBe(true);
  });

  test.each(PUBLIC)('networks: %s is public', (address) => {
    expect(isPrivateAddress(address)).toBe(false);
  });

  test('networks: a text that is not an address is in no network', () => {
    for (const text of ['', 'localhost', '127.1', '[::1]', '2130706433', '10.0.0.0/8']) {
      expect(isPrivateAddress(text), text).toBe(false);
    }
  });

  test('networks: an IPv4 address is private if and only if every IPv6 form that embeds it is', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) => {
        const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
        const high = ((a << 8) | b).toString(16);
        const low = ((c << 8) | d).toString(16);
        const [notHigh, notLow] = [high, low].map((part) =>
          (0xffff - Number.parseInt(part, 16)).toString(16),
        );
        const forms = [
          `::ffff:${address}`,
          `64:ff9b::${high}:${low}`,
          `2002:${high}:${low}::1`,
          `2001:0:808:808:0:0:${notHigh}:${notLow}`,
          `2606:4700::5efe:${high}:${low}`,
        ];
        for (const form of forms) {
          expect(embeddedIpv4(form), form).toContain(address);
          expect(isPrivateAddress(form), form).toBe(isPrivateAddress(address));
        }
      }),
      { examples: [['127.0.0.1'], ['8.8.8.8'], ['0.0.0.1'], ['255.255.255.255']] },
    );
  });
});

test('networks: loopback is 127/8 and ::1 in any spelling', () => {
  for (const address of ['127.0.0.1', '127.9.9.9', '::1', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.1']) {
    expect(isLoopbackAddress(address), address).toBe(true);
  }
  for (const address of ['128.0.0.1', '10.0.0.1', '0.0.0.0', '::', '::2', 'localhost']) {
    expect(isLoopbackAddress(address), address).toBe(false);
  }
});

test('networks: only the known kinds of addresses embed an IPv4 address', () => {
  for (const address of ['2001:db8::7f00:1', 'fe80::7f00:1', '1::ffff:7f00:1', '127.0.0.1', 'nothing']) {
    expect(embeddedIpv4(address), address).toEqual([]);
  }
});

test('networks: a set contains its networks, single addresses and IPv4-mapped addresses', () => {
  const set = new Networks(['192.0.2.0/24', '198.51.100.7', '2001:db8::/32']);
  for (const inside of ['192.0.2.0', '192.0.2.255', '::ffff:192.0.2.9', '198.51.100.7', '2001:db8:9::1']) {
    expect(set.has(inside), inside).toBe(true);
  }
  for (const outside of ['192.0.3.0', '198.51.100.8', '2001:db9::1', '::1', 'example.com']) {
    expect(set.has(outside), outside).toBe(false);
  }
  expect(new Networks([]).has('192.0.2.1')).toBe(false);
});

test('networks: an address that embeds an IPv4 address of the set is refused by it, not admitted', () => {
  const set = new Networks(['192.0.2.0/24']);
  for (const address of ['2002:c000:201::1', '2001:db8::5efe:192.0.2.1', '64:ff9b::192.0.2.1']) {
    expect(set.has(address), address).toBe(false);
    expect(set.hasOrEmbeds(address), address).toBe(true);
  }
});

test('networks: isCidr accepts CIDR form and addresses only', () => {
  const good = ['192.0.2.0/24', '0.0.0.0/0', '192.0.2.1/32', '192.0.2.1', '::/0', '2001:db8::/128', '::1'];
  for (const text of [...good, ...PRIVATE_NETWORKS]) expect(isCidr(text), text).toBe(true);
  const bad = ['', '/8', '10.0.0.0/', '10.0.0.0/33', '::/129', '10.0.0.0/8/8', '10.0.0/8', '10.0.0.0/-1'];
  for (const text of [...bad, 'example.com/8', 'fe80::1%eth0/64', '10.0.0.0/8 ', '10.0.0.0/0x8']) {
    expect(isCidr(text), text).toBe(false);
    expect(() => new Networks([text]), text).toThrow(TypeError);
  }
});

test('networks: an IPv4 client counts by address, an IPv6 client by /64', () => {
  expect(clientNetwork('192.0.2.1')).toBe('192.0.2.1');
  expect(clientNetwork('::ffff:192.0.2.1')).toBe('192.0.2.1');
  expect(clientNetwork('2001:db8:1:2::1')).toBe('2001:db8:1:2::/64');
  expect(clientNetwork('2001:db8:1:2:ffff::9')).toBe(clientNetwork('2001:db8:1:2::1'));
  expect(clientNetwork('2001:db8:1:3::1')).not.toBe(clientNetwork('2001:db8:1:2::1'));
  expect(clientNetwork('fe80::1%eth0')).toBe('fe80:0:0:0::/64');
});
