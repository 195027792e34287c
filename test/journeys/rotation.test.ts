/**
 * A client of each of the four protocols reaches its target at every call, each time through another member, while
 * members expire and are replaced. The tests use curl and check the exits that the target saw.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { openTestSandbox, sourceLine, startNoria } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';

/** The number of members of each source. */
const MEMBERS = 6;
/** The number of calls of one curl, each on its own connection. */
const CALLS = 20;
const CLOSE = ['-H', 'Connection: close'];

const PROTOCOLS = {
  http: (proxy: string) => ['-x', `http://${proxy}`],
  CONNECT: (proxy: string) => [...CLOSE, '-p', '-x', `http://${proxy}`],
  socks5h: (proxy: string) => [...CLOSE, '-x', `socks5h://${proxy}`],
  socks4a: (proxy: string) => [...CLOSE, '-x', `socks4a://${proxy}`],
} as const;

/**
 * Starts a noria with HTTP and SOCKS5 members that live for two seconds. noria draws new members before the old ones
 * expire.
 */
async function startShortLived() {
  const sandbox = await openTestSandbox({
    members: MEMBERS * 4,
    lifetimeMs: [1_500, 2_500],
    graceMs: 60_000, // so that a call that a busy machine delays is not cut off
    instances: [{ product: 'short-pure' }, { product: 'shared' }],
  });
  const size = `size: ${MEMBERS}, params: { count: ${MEMBERS}`;
  const noria = await startNoria({
    sources: [
      sourceLine(sandbox, 'pure', 'short-pure', `interval: 300ms, ${size} }`),
      sourceLine(sandbox, 'shared', 'shared', `interval: 1s, ${size}, pro: 2 }`),
    ],
    pool: 'safetyMargin: 200ms, minRemaining: 0s, idleAfter: 0s',
    more: 'dial: { waitForMember: 60s, deadline: 60s }',
  });
  return { sandbox, noria };
}

test.skipIf(!hasCommand('curl'))(
  'rotation: every call of every protocol succeeds, through all members, while they expire and are replaced',
  async () => {
    const { sandbox, noria } = await startShortLived();
    const url = `${sandbox.targetUrl}/ip`;
    const left: string[] = [];
    noria.bus.on('member.left', ({ reason }) => left.push(reason));
    const { calls: firstDraws } = sandbox.stats();
    const exits = new Set<string>();
    const callAll = () =>
      Promise.all(
        Object.entries(PROTOCOLS).map(async ([name, argsOf]) => {
          const { exitCode, out, err } = await curl(...argsOf(noria.proxy), `${url}?[1-${CALLS}]`);
          expect({ exitCode, err }, name).toEqual({ exitCode: 0, err: '' });
          const seen = out.trim().split('\n');
          expect(seen.length, name).toBe(CALLS);
          expect(new Set(seen).size, `${name}: exits in a row`).toBeGreaterThan(1);
          for (const exit of seen) exits.add(exit);
        }),
      );

    while (exits.size < MEMBERS * 2) await callAll();
    while (left.length < MEMBERS * 2) {
      expect((await curl('-x', `http://${noria.proxy}`, url)).out).toMatch(/^127(\.\d+){3}\n$/);
      await pause(50);
    }
    const before = exits.size;
    while (exits.size === before) await callAll(); // until it finds the exits of new members

    expect(new Set(left)).toEqual(new Set(['expired']));
    expect(sandbox.stats().calls).toBeGreaterThan(firstDraws);
    expect([sandbox.stats().paceBreaks, sandbox.stats().codes['12002']]).toEqual([0, undefined]);
    for (const exit of exits) expect(exit).toMatch(/^127(\.\d+){3}$/);
    expect(sandbox.strangers()).toEqual([]);
  },
);
