import { expect, test } from 'vitest';
import type { Fault } from '../../src/core/faults.ts';
import { FAULTS } from '../../src/core/faults.ts';
import { refusalReply } from '../../src/listener/http/replies.ts';
import { inBothLanguages } from '../support/translations.ts';

const PAGES = inBothLanguages('docs/errors.md');
const faults: readonly (readonly [string, Fault])[] = Object.entries(FAULTS);

function socks5Cell(reply: Fault['socks5']): string {
  if (reply === undefined) return '–';
  return reply === 'auth' ? reply : `0x${reply.toString(16).padStart(2, '0')}`;
}

test.each(PAGES)('$file: lists every fault once, as in the table', ({ text, translated }) => {
  // In a translation, the last two cells are translated sentences, so they are not compared.
  const held = (cells: readonly string[]) => (translated ? cells.slice(0, -2) : cells);
  const rows = text
    .split('\n')
    .filter((line) => /^\| `[a-z-]+` \|/.test(line))
    .map((line) => line.slice(2, -2).split(' | '));
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
  expect(rows.map(held).sort(byCode)).toEqual(coded.map(held).sort(byCode));
  expect(rows.map((cells) => cells.length).sort()).toEqual(coded.map((cells) => cells.length).sort());
});

test.each(PAGES)('$file: the example is the response that noria sends', ({ text }) => {
  const { status, reasonPhrase, headers, body } = refusalReply({
    code: 'pool-empty',
    reason: 'Waited 15 s for a member that can serve this request.',
    retryAfterMs: 3_200,
    sources: [
      { name: 'city', state: 'waiting', reason: 'the pace allows one draw in 10 s', nextDrawMs: 3_200 },
    ],
  });
  const shown = /```http\n([\s\S]*?)```/.exec(text)?.[1];
  const head = [`HTTP/1.1 ${status} ${reasonPhrase}`, ...headers.map(([name, value]) => `${name}: ${value}`)];
  expect(shown).toBe(`${head.join('\n')}\n\n${body}`);
});
