import { expect, test } from 'vitest';
import { MINUTE_MS } from '../../src/core/duration.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import type { DrawSourceOptions, UrlAccess } from '../../src/refill/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { openRig, pass, type Rig, sourceOptions } from './rig.ts';

type WhitelistRules = NonNullable<DrawSourceOptions['whitelist']>;

const INTERVAL_MS = 10_000;
/** Two intervals, with their slack and one call. */
const HEALED_MS = 2 * INTERVAL_MS + 1_000;

interface Vendor {
  readonly rig: Rig;
  /** The calls of the binding URL: when, and for which address. */
  readonly bindings: (readonly [at: number, address: string])[];
  /** The address from which noria calls now. */
  own: string;
  status: number;
  accepts: boolean;
}

/** A service that draws only for the address that was bound last, and names the address that it refuses. */
function openVendor(
  whitelist: Partial<WhitelistRules> = {},
  { names = true }: { readonly names?: boolean } = {},
): Vendor {
  const clock = new ManualClock();
  const bindings: [number, string][] = [];
  const vendor = { own: '203.0.113.7', status: 200, accepts: true };
  let bound = '';
  const urls: UrlAccess = {
    exitOf: async () => undefined,
    open: async () => ({
      close: () => {},
      get: async (url, gate) => {
        gate?.beforeWrite();
        gate?.answered();
        const asked = new URL(url.reveal());
        if (asked.pathname === '/my') return { status: 200, text: vendor.own };
        const address = asked.searchParams.get('ip') ?? '';
        bindings.push([clock.monotonic(), address]);
        if (vendor.status === 200 && vendor.accepts) bound = address;
        return { status: vendor.status, text: vendor.status === 200 ? 'ok' : 'no such page' };
      },
    }),
  };
  const options: WhitelistRules = {
    url: new Secret('https://vendor.test/bind?ip={ip}'),
    everyMs: 10 * MINUTE_MS,
    myIp: undefined,
    ...whitelist,
  };
  const rig = openRig({
    clock,
    urls,
    sources: [sourceOptions({ intervalMs: INTERVAL_MS, whitelist: options })],
    prepare: ({ service }) => {
      service.reply = () =>
        bound === vendor.own
          ? { code: '10001' }
          : { code: '12007', message: names ? `IP ${vendor.own} 未绑定` : '未绑定' };
    },
  });
  return Object.assign(vendor, { rig, bindings });
}

const members = ({ rig }: Vendor) => rig.pool.usableAt('city', rig.clock.monotonic());

test('whitelist: an address that is not authorised is bound and draws within two intervals', async () => {
  const vendor = openVendor();
  await pass(vendor.rig.clock, HEALED_MS, 100);
  expect(vendor.bindings.map(([, address]) => address)).toEqual(['203.0.113.7']);
  expect(members(vendor)).toBeGreaterThan(0);
  const [bindAt = 0] = vendor.bindings[0] ?? [];
  const [first, second] = vendor.rig.service.calls;
  expect(bindAt - (first?.at ?? 0), 'the binding keeps the pace').toBeGreaterThanOrEqual(INTERVAL_MS);
  expect((second?.at ?? 0) - bindAt, 'the draw keeps the pace').toBeGreaterThanOrEqual(INTERVAL_MS);
});

test('whitelist: a changed address of this machine heals within two intervals, also before every has passed', async () => {
  const vendor = openVendor();
  await pass(vendor.rig.clock, HEALED_MS, 100);
  vendor.own = '198.51.100.9';
  const drawn = vendor.rig.service.calls.length;
  await pass(vendor.rig.clock, 4 * MINUTE_MS, 100); // all members expire, so noria draws again
  const refusedAt = vendor.rig.service.calls[drawn]?.at ?? Infinity;
  const again = vendor.rig.service.calls[drawn + 1]?.at ?? Infinity;
  expect(vendor.bindings.map(([, address]) => address)).toEqual(['203.0.113.7', '198.51.100.9']);
  expect(again - refusedAt).toBeLessThan(HEALED_MS);
  expect(members(vendor)).toBeGreaterThan(0);
});

test('whitelist: a wrong URL is called once in every, and one message says what is wrong', async () => {
  const vendor = openVendor();
  vendor.status = 404;
  await pass(vendor.rig.clock, 9 * MINUTE_MS, 5_000);
  expect(vendor.bindings).toHaveLength(1);
  expect(vendor.rig.status()).toMatchObject({ state: 'paused', code: '12007' });
  expect(vendor.rig.status().advice).toMatch(
    /The call of whitelist\.url for 203\.0\.113\.7 .* ago answered with status 404: no such page\. Correct whitelist/,
  );
  await pass(vendor.rig.clock, 3 * MINUTE_MS, 5_000);
  expect(vendor.bindings).toHaveLength(2);
});

test('whitelist: a vendor that still refuses after the binding is told, and not bound again before every', async () => {
  const vendor = openVendor();
  vendor.accepts = false;
  await pass(vendor.rig.clock, 9 * MINUTE_MS, 5_000);
  expect(vendor.bindings).toHaveLength(1);
  expect(vendor.rig.status().advice).toMatch(
    /noria called whitelist\.url for .* and the service still refuses/,
  );
});

test.each([
  ['that names no place for the address', { url: new Secret('https://vendor.test/bind') }, true],
  ['for an address that another URL tells', { myIp: 'https://vendor.test/my' }, false],
])('whitelist: a vendor that ignores a URL %s causes no loop of draws', async (_, rules, names) => {
  const vendor = openVendor(rules, { names });
  vendor.accepts = false;
  await pass(vendor.rig.clock, 9 * MINUTE_MS, 5_000);
  expect(vendor.bindings).toHaveLength(1);
  expect(vendor.rig.status()).toMatchObject({ state: 'paused', code: '12007' });
  expect(vendor.rig.status().advice).toContain('and the service still refuses');
  expect(vendor.rig.service.calls.length, 'a draw every ten seconds would be 54').toBeLessThan(15);
});

test('whitelist: an answer without an address takes the one of myIp, an address or a URL', async () => {
  const fixed = openVendor({ myIp: '203.0.113.7' }, { names: false });
  const asked = openVendor({ myIp: 'https://vendor.test/my' }, { names: false });
  for (const vendor of [fixed, asked]) {
    await pass(vendor.rig.clock, HEALED_MS, 100);
    expect(vendor.bindings.map(([, address]) => address)).toEqual(['203.0.113.7']);
    expect(members(vendor)).toBeGreaterThan(0);
  }
  asked.own = '198.51.100.9';
  await pass(asked.rig.clock, 4 * MINUTE_MS);
  expect(asked.bindings.map(([, address]) => address)).toEqual(['203.0.113.7', '198.51.100.9']);
});

test('whitelist: without an address noria calls nothing, and says what to set', async () => {
  const vendor = openVendor({}, { names: false });
  await pass(vendor.rig.clock, 2 * MINUTE_MS, 5_000);
  expect(vendor.bindings).toHaveLength(0);
  expect(vendor.rig.status().advice).toContain('set whitelist.myIp of the source');
});

test('whitelist: a binding that fails is told as its failure', async () => {
  const broken: UrlAccess = {
    exitOf: async () => undefined,
    open: async () => {
      throw new NoriaError('service-transport', 'vendor.test refused the connection');
    },
  };
  const rig = openRig({
    urls: broken,
    sources: [
      sourceOptions({
        whitelist: { url: new Secret('https://vendor.test/?ip={ip}'), everyMs: MINUTE_MS, myIp: '192.0.2.1' },
      }),
    ],
    prepare: ({ service }) => {
      service.reply = () => ({ code: '12010', message: '' });
    },
  });
  await pass(rig.clock, MINUTE_MS, 5_000);
  expect(rig.status().advice).toContain('failed: vendor.test refused the connection');
});
