/**
 * `noria status --watch`: prints the status every second until Ctrl-C. On a terminal, it uses the alternate screen,
 * which keeps the scrollback unchanged, and redraws line by line, which avoids flicker. Otherwise it prints one status
 * after the other.
 */
import type { MemberJson, Status } from '../admin/schemas.ts';
import { type Clock, pause } from '../core/clock.ts';
import { hasCode } from '../core/faults.ts';
import { formatStatus } from './status-format.ts';
import { cutToWidth } from './table.ts';
import type { Terminal } from './terminal.ts';

interface StatusWatch {
  readonly fetch: () => Promise<{ readonly status: Status; readonly members: readonly MemberJson[] }>;
  readonly url: string;
  readonly terminal: Terminal;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

const INTERVAL_MS = 1_000;
const ENTER_SCREEN = '\u001b[?1049h\u001b[?25l';
const LEAVE_SCREEN = '\u001b[?25h\u001b[?1049l';
const TO_TOP = '\u001b[H';
const CLEAR_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/**
 * Runs until `signal` aborts. If noria stops answering, says so on the screen and tries again.
 *
 * @returns whether noria was ready in the last status.
 * @throws NoriaError if the first request fails, or if noria refuses a later one.
 */
export async function watchStatus(options: StatusWatch): Promise<boolean> {
  const { terminal, clock, signal } = options;
  let { ready, lines } = await fetchStatus(options);
  let seenAt = clock.monotonic();
  if (terminal.interactive) terminal.write(ENTER_SCREEN);
  try {
    while (!signal.aborted) {
      show(terminal, lines);
      await pause(clock, INTERVAL_MS, signal);
      if (signal.aborted) break;
      try {
        ({ ready, lines } = await fetchStatus(options));
        seenAt = clock.monotonic();
      } catch (error) {
        if (!hasCode(error, 'daemon-unreachable')) throw error;
        ready = false;
        const silentSeconds = Math.round((clock.monotonic() - seenAt) / 1_000);
        lines = [`no answer from ${options.url} for ${silentSeconds} s; retrying`];
      }
    }
  } finally {
    if (terminal.interactive) terminal.write(LEAVE_SCREEN);
  }
  // prints the last status on the normal screen, where it stays visible
  if (terminal.interactive) for (const line of lines) terminal.print(line);
  return ready;
}

async function fetchStatus({
  fetch,
  terminal,
  clock,
}: StatusWatch): Promise<{ ready: boolean; lines: string[] }> {
  const { status, members } = await fetch();
  const { colour, columns } = terminal;
  const lines = formatStatus(status, members, { now: clock.now(), colour, columns });
  return { ready: status.ready, lines };
}

function show(terminal: Terminal, lines: readonly string[]): void {
  if (!terminal.interactive) {
    terminal.print(`${lines.join('\n')}\n`);
    return;
  }
  const room = Math.max(1, terminal.rows - 1);
  const shown =
    lines.length <= room ? lines : [...lines.slice(0, room - 1), `… ${lines.length - room + 1} more lines`];
  const redrawn = shown.map((line) => `${cutToWidth(line, terminal.columns)}${CLEAR_LINE_END}\n`);
  terminal.write(`${TO_TOP}${redrawn.join('')}${CLEAR_BELOW}`);
}
