/** When a whitelist calls the vendor's binding URL, for which address, and what the operator is told. */
import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import { openPaces } from '../../src/refill/pace.ts';
import type { DrawOutcome } from '../../src/refill/reaction.ts';
import { Whitelist } from '../../src/refill/whitelist.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { manualTimekeeper } from './rig.ts';

const EVERY_MS = 600_000;
const RULE = { intervalMs: 10_000, callTimeoutMs: 5_000 };
const ASK = 'https://vendor.test/my';

interface Vendor {
  readonly url?: string;
  readonly myIp?: string | undefined;
  readonly answers?: Readonly<Record<string, { readonly status: number; readonly text: string }>>;
}

function open({ url = 'https://vendor.test/bind?ip={ip}&again={ip}', myIp, answers = {} }: Vendor = {}) {
  const clock = ManualClock.dayOld();
  const stage = { called: [] as string[], open: 0, isLate: false, error: undefined as Error | undefined };
  const urls = {
    exitOf: async () => undefined,
    open: async () => {
      if (stage.error !== undefined) throw stage.error;
      stage.open += 1;
      return {
        close: () => (stage.open -= 1),
        get: async (asked: Secret, gate?: { beforeWrite(): void }) => {
          if (stage.isLate) clock.advance(2_000);
          gate?.beforeWrite();
          stage.called.push(asked.reveal());
          return answers[asked.reveal()] ?? { status: 200, text: '' };
        },
      };
    },
  };
  const options = { url: new Secret(url), everyMs: EVERY_MS, myIp };
  const whitelist = new Whitelist(clock, urls, options);
  const store = createPaceMemory(manualTimekeeper(clock));
  const place = openPaces({ clock, store, random: () => 0 })('key').enter(RULE);
  const abort = new AbortController();
  const refused = (message?: string) => {
    const outcome = { code: '12007', summary: 's', advice: 'Bind it.', message, verdict: { kind: 'halt' } };
    return whitelist.refused(outcome as DrawOutcome).advice;
  };
  const bind = async () => {
    clock.advance(20_000); // the pace of the place
    await whitelist.bind(place, abort.signal);
    return stage.called.splice(0);
  };
  return { clock, stage, whitelist, refused, bind, abort };
}

const CALLS = 'noria now calls whitelist.url of the source to authorise this machine.';
const bound = (address: string) => [`https://vendor.test/bind?ip=${address}&again=${address}`];

test.each([
  ['IP 203.0.113.7 is not bound', '203.0.113.7'],
  ['203.0.113.7', '203.0.113.7'],
  ['version 1.2.3.4.5, address 203.0.113.7', '203.0.113.7'],
  ['999.0.113.7, then 198.51.100.9', '198.51.100.9'],
])('whitelist rules: the first address in the message is bound (%s)', async (message, address) => {
  const { refused, bind, whitelist, stage } = open();
  expect(refused(message)).toBe(CALLS);
  expect(whitelist.isDue).toBe(true);
  expect(await bind()).toEqual(bound(address));
  expect([whitelist.isDue, stage.open]).toEqual([false, 0]);
});

test('whitelist rules: the same address is bound once in every, another one at once', async () => {
  const { refused, bind, clock } = open();
  refused('203.0.113.7');
  await bind();
  clock.advance(80_000 - 1);
  expect(refused('203.0.113.7')).toBe(
    'noria called whitelist.url for 203.0.113.7 80 s ago, and the service still refuses it. Bind it.',
  );
  clock.advance(EVERY_MS - 80_000);
  expect(refused('203.0.113.7')).not.toBe(CALLS);
  expect(refused('198.51.100.9')).toBe(CALLS);
  expect(await bind()).toEqual(bound('198.51.100.9'));
  clock.advance(EVERY_MS - 1);
  expect(refused('198.51.100.9')).not.toBe(CALLS);
  clock.advance(1);
  expect(refused('198.51.100.9')).toBe(CALLS);
});

test('whitelist rules: after a failed call, another address waits for every, too', async () => {
  const answers = { [bound('203.0.113.7')[0] ?? '']: { status: 300, text: '' } };
  const { refused, bind, clock } = open({ answers });
  refused('203.0.113.7');
  await bind();
  expect(refused('198.51.100.9')).toBe(
    'The call of whitelist.url for 203.0.113.7 0 s ago answered with status 300. Correct whitelist of the source, or: Bind it.',
  );
  clock.advance(EVERY_MS);
  expect(refused('198.51.100.9')).toBe(CALLS);
});

test('whitelist rules: a message without an address takes myIp, which a later one overrides', async () => {
  const fixed = open({ myIp: '192.0.2.1' });
  expect(fixed.refused()).toBe(CALLS);
  expect(await fixed.bind()).toEqual(bound('192.0.2.1'));
  expect(fixed.refused('no address'), 'the same').not.toBe(CALLS);
  expect(fixed.refused('203.0.113.7')).toBe(CALLS);
  expect(await fixed.bind()).toEqual(bound('203.0.113.7'));
});

test('whitelist rules: a URL tells the address each time, and the binding URL is called only for another one', async () => {
  const answers: Record<string, { status: number; text: string }> = {
    [ASK]: { status: 200, text: '192.0.2.1' },
  };
  const { refused, bind, stage } = open({ myIp: ASK, answers });
  refused();
  expect(await bind()).toEqual([ASK, ...bound('192.0.2.1')]);
  expect(refused(), 'only the URL tells whether it is another one').toBe(CALLS);
  expect(await bind()).toEqual([ASK]);
  expect(refused(), 'it has just told the same').toMatch(
    /^noria called whitelist.url for 192\.0\.2\.1 .* still refuses/,
  );
  answers[ASK] = { status: 200, text: '192.0.2.2' };
  expect(refused()).toBe(CALLS);
  expect(await bind()).toEqual([ASK, ...bound('192.0.2.2')]);
  expect(stage.open).toBe(0);
  answers[ASK] = { status: 200, text: 'none' };
  refused();
  expect(await bind()).toEqual([ASK]);
  expect(refused('192.0.2.3')).toMatch(
    /^The call of whitelist\.url for this machine 0 s ago failed: whitelist\.myIp answered with status 200 and no address\. /,
  );
  expect(stage.open).toBe(0);
});

test('whitelist rules: an address with another status is none', async () => {
  const { refused, bind } = open({ myIp: ASK, answers: { [ASK]: { status: 201, text: '192.0.2.1' } } });
  refused();
  await bind();
  expect(refused('x')).toContain('failed: whitelist.myIp answered with status 201 and no address');
});

test('whitelist rules: a URL without a place for the address is called without one, once in every', async () => {
  const { refused, bind, clock } = open({ url: 'https://vendor.test/bind', myIp: ASK });
  refused();
  expect(await bind()).toEqual(['https://vendor.test/bind']);
  clock.advance(EVERY_MS - 1);
  expect(refused('203.0.113.7'), 'it is the same for any address').not.toBe(CALLS);
  clock.advance(1);
  expect(refused('203.0.113.7')).toBe(CALLS);
});

test('whitelist rules: without any address it says what to set', async () => {
  const { refused, bind } = open();
  expect(refused()).toBe(CALLS);
  expect(await bind()).toEqual([]);
  expect(refused()).toBe(
    'The call of whitelist.url for this machine 0 s ago failed: the service names no address; set whitelist.myIp of the source. Correct whitelist of the source, or: Bind it.',
  );
});

test('whitelist rules: a call that the pace stops, that fails or that is aborted', async () => {
  const late = open();
  late.refused('203.0.113.7');
  late.stage.isLate = true;
  expect(await late.bind()).toEqual([]);
  expect(late.refused('203.0.113.7')).toContain('for 203.0.113.7 2 s ago was late.');
  expect(late.stage.open).toBe(0);
  const failing = open();
  failing.refused('203.0.113.7');
  failing.stage.error = new NoriaError('service-transport', 'no route');
  await failing.bind();
  expect(failing.refused('203.0.113.7')).toContain('for 203.0.113.7 0 s ago failed: no route.');
  const aborted = open();
  aborted.refused('203.0.113.7');
  aborted.abort.abort();
  expect(await aborted.bind()).toEqual([]);
  aborted.stage.error = new Error('aborted');
  await aborted.bind();
  expect(aborted.refused('203.0.113.7'), 'nothing is recorded').toBe(CALLS);
  const broken = open();
  broken.refused('203.0.113.7');
  broken.stage.error = new TypeError('a bug');
  await expect(broken.bind()).rejects.toThrow('a bug');
});

test('whitelist rules: an answer with a text is told with it', async () => {
  const answers = { [bound('203.0.113.7')[0] ?? '']: { status: 403, text: 'no' } };
  const { refused, bind } = open({ answers });
  refused('203.0.113.7');
  await bind();
  expect(refused('203.0.113.7')).toContain('answered with status 403: no. Correct whitelist');
});
