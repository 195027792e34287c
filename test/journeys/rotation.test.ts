/**
 * A client that speaks any of the four ways of a proxy reaches its target at every call, each time through another
 * member, while members expire and are replaced. Seen by the exits that the target saw, through curl.
 */
import { request } from 'node:http';
import { describe, expect, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady, WORKERS } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';

const MEMBERS = 6;
/** Fewer when the journeys run a second time, with workers. */
const CALLS = WORKERS === 1 ? 200 : 80;
const BESIDE_EACH_OTHER = 8;

const WAYS = {
  http: (proxy: string) => ['-x', `http://${proxy}`],
  CONNECT: (proxy: string) => ['-p', '-x', `http://${proxy}`],
  socks5h: (proxy: string) => ['-x', `socks5h://${proxy}`],
  socks4a: (proxy: string) => ['-x', `socks4a://${proxy}`],
} as const;

/** Members of both kinds that live three seconds, drawn more often than they end; not as often as their products allow, since a busy machine delays calls. */
async function startShortLived() {
  const sandbox = await openTestSandbox({
    members: MEMBERS * 4,
    lifetimeMs: [2_500, 3_500],
    graceMs: 2_000,
    instances: [{ product: 'short-pure' }, { product: 'shared' }],
  });
  const noria = await startNoria({
    sources: [
      sourceLine(
        sandbox,
        'pure',
        'short-pure',
        `interval: 400ms, size: ${MEMBERS}, params: { count: ${MEMBERS} }`,
      ),
      sourceLine(
        sandbox,
        'shared',
        'shared',
        `interval: 1500ms, size: ${MEMBERS}, params: { count: ${MEMBERS}, pro: 2 }`,
      ),
    ],
  });
  await untilReady(noria, MEMBERS * 2);
  return { sandbox, noria };
}

describe.skipIf(!hasCommand('curl'))('rotation', () => {
  for (const [name, argsOf] of Object.entries(WAYS)) {
    test(`rotation: ${CALLS} calls by ${name} all succeed through as many exits as there are members`, async () => {
      const { sandbox, noria } = await startShortLived();
      const exits = new Map<string, number>();
      const failures: string[] = [];
      let left = CALLS;
      const one = async () => {
        while (left > 0) {
          left -= 1;
          const { exitCode, out, err } = await curl(...argsOf(noria.proxy), `${sandbox.targetUrl}/ip`);
          if (exitCode !== 0 || !/^127(\.\d+){3}\n$/.test(out)) failures.push(`${exitCode} ${out}${err}`);
          else exits.set(out, (exits.get(out) ?? 0) + 1);
        }
      };
      await Promise.all(Array.from({ length: BESIDE_EACH_OTHER }, one));
      expect(failures).toEqual([]);
      expect(exits.size).toBeGreaterThanOrEqual(MEMBERS * 2);
      expect(sandbox.stats().codes['12002'] ?? 0).toBe(0);
      expect(sandbox.strangers()).toEqual([]);
    });
  }
});

test('rotation: members that expire are replaced before they are missed', async () => {
  const { sandbox, noria } = await startShortLived();
  const drawnAtFirst = sandbox.stats().calls;
  const gone: string[] = [];
  noria.bus.on('member.left', ({ reason }) => gone.push(reason));
  const answers: number[] = [];
  while (gone.length <= MEMBERS) {
    const answer = await fetchThrough(noria.proxy, `${sandbox.targetUrl}/ip`);
    answers.push(answer);
  }
  expect(answers.filter((status) => status !== 200)).toEqual([]);
  expect(new Set(gone)).toEqual(new Set(['expired']));
  expect(sandbox.stats().calls).toBeGreaterThan(drawnAtFirst);
  expect(sandbox.stats().paceBreaks).toBe(0);
});

function fetchThrough(proxy: string, url: string): Promise<number> {
  const [host, port] = proxy.split(':');
  return new Promise((resolve, reject) => {
    const asked = request(
      { host, port, path: url, headers: { host: new URL(url).host }, agent: false },
      (answer) => {
        answer.resume();
        answer.on('end', () => resolve(answer.statusCode ?? 0));
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}
