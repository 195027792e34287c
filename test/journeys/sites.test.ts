/**
 * A client whose site bans every exit, over a whole noria: it reports each ban, gets a newly drawn exit for each request, and is
 * refused at once when the site has caused as many draws as its rule allows.
 */
import { expect, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { openTestSandbox, sourceLine, startNoria } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';

const DRAWS = 4;

test.skipIf(!hasCommand('curl'))(
  'sites: a session whose site bans every exit is served after each draw, until drawsForBans',
  async () => {
    const sandbox = await openTestSandbox({
      members: 30,
      instances: [{ product: 'short-pure' }],
    });
    const noria = await startNoria({
      sources: [sourceLine(sandbox, 'pure', 'short-pure', 'interval: 200ms, size: 2')],
      more: `targets: [{ match: ["127.0.0.1"], drawsForBans: ${DRAWS} }]`,
    });
    const url = `${sandbox.targetUrl}/ip`;
    const get = async () => {
      const { out } = await curl('-i', '-U', 'any-session-cart:', '-x', `http://${noria.proxy}`, url);
      const [head = '', body = ''] = out.split('\r\n\r\n');
      return { head, body: body.trim() };
    };
    const exits: string[] = [];
    const banCurrent = () =>
      fetch(`${noria.admin}/api/reports`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ session: 'cart', host: '127.0.0.1', verdict: 'banned' }),
      });

    let refused: Awaited<ReturnType<typeof get>> | undefined;
    while (refused === undefined) {
      const { head, body } = await get();
      if (!head.startsWith('HTTP/1.1 200')) refused = { head, body };
      else {
        expect(exits, 'an exit that the site has banned').not.toContain(body);
        exits.push(body);
        expect((await banCurrent()).status).toBe(204);
      }
      expect(exits.length).toBeLessThan(20);
    }

    expect(refused.head).toMatch(/^HTTP\/1\.1 503 .*x-noria-error: site-banned.*retry-after: \d+/is);
    expect(refused.body).toMatch(
      /knows of \d+ exits that this site has banned, since .*\(4 for each source\)/,
    );
    const [site] = noria.control.sites();
    expect(site).toMatchObject({ name: '127.0.0.1', draws: DRAWS, usableExits: 0 });
    expect(site?.bannedExits).toBe(exits.length);
    expect(exits.length).toBeGreaterThan(DRAWS);
    expect(sandbox.stats().paceBreaks).toBe(0);
  },
);
