import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { FAULTS, type Fault } from '../../src/core/faults.ts';
import { refusalReply } from '../../src/listener/http/replies.ts';

const page = readFileSync('docs/errors.md', 'utf8');
/** The rows of all tables that begin with a code. */
const rows = page
  .split('\n')
  .filter((line) => /^\| `[a-z-]+` \|/.test(line))
  .map((line) => line.slice(2, -2).split(' | '));
const faults: readonly (readonly [string, Fault])[] = Object.entries(FAULTS);

function socks5Cell(reply: Fault['socks5']): string {
  if (reply === undefined) return '–';
  return reply === 'auth' ? reply : `0x${reply.toString(16).padStart(2, '0')}`;
}

test('docs/errors.md: lists every fault once, as in the table', () => {
  const coded = faults.map(([code, fault]) =>
    fault.proxyStatus === undefined
      ? [`\`${code}\``, fault.side, fault.retry, fault.summary, fault.advice]
      : [
          `\`${code}\``,
          String(fault.http),
          socks5Cell(fault.socks5),
          `\`${fault.proxyStatus}\``,
          fault.summary,
          fault.advice,
        ],
  );
  expect(rows.length, 'nothing to compare').toBeGreaterThan(0);
  const byCode = (a: readonly string[], b: readonly string[]) => String(a[0]).localeCompare(String(b[0]));
  expect([...rows].sort(byCode)).toEqual([...coded].sort(byCode));
});

test('docs/errors.md: the example is the response that noria sends', () => {
  const { status, reasonPhrase, headers, body } = refusalReply({
    code: 'pool-empty',
    reason: 'Waited 15 s for a member that fits the routing options.',
    retryAfterMs: 3_200,
    sources: [
      { name: 'city', state: 'waiting', reason: 'the pace allows one draw in 10 s', nextDrawMs: 3_200 },
    ],
  });
  const shown = /```http\n([\s\S]*?)```/.exec(page)?.[1];
  const head = [`HTTP/1.1 ${status} ${reasonPhrase}`, ...headers.map(([name, value]) => `${name}: ${value}`)];
  expect(shown).toBe(`${head.join('\n')}\n\n${body}`);
});
