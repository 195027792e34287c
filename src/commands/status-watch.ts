/**
 * `noria status --watch`: the picture, again and again, until Ctrl-C.
 *
 * On a terminal it is drawn over the one before, on a screen of its own, line by line without clearing, so that nothing
 * flickers and the scrollback stays as it was. Piped, each is printed after the other.
 */
import type { MemberJson, Status } from '../admin/schemas.ts';
import { type Clock, pause } from '../core/clock.ts';
import { hasCode } from '../core/faults.ts';
import { drawStatus } from './status-picture.ts';
import { cutToWidth } from './table.ts';
import type { Terminal } from './terminal.ts';

export interface Watching {
  readonly ask: () => Promise<{ readonly status: Status; readonly members: readonly MemberJson[] }>;
  /** Where it asks, for the line that says that nothing answers. */
  readonly where: string;
  readonly terminal: Terminal;
  readonly clock: Clock;
  /** Ends it. */
  readonly signal: AbortSignal;
}

const INTERVAL_MS = 1_000;
const ENTER_SCREEN = '\u001b[?1049h\u001b[?25l';
const LEAVE_SCREEN = '\u001b[?25h\u001b[?1049l';
const TO_TOP = '\u001b[H';
const CLEAR_LINE_END = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/**
 * Shows it until `signal` aborts. @returns whether noria was ready at last.
 *
 * @throws NoriaError when the very first question fails; later it says so and goes on asking.
 */
export async function watchStatus(watching: Watching): Promise<boolean> {
  const { terminal, clock, signal } = watching;
  let { ready, lines } = await picture(watching);
  let seenAt = clock.monotonic();
  if (terminal.interactive) terminal.write(ENTER_SCREEN);
  try {
    while (!signal.aborted) {
      show(terminal, lines);
      await pause(clock, INTERVAL_MS, signal);
      if (signal.aborted) break;
      try {
        ({ ready, lines } = await picture(watching));
        seenAt = clock.monotonic();
      } catch (error) {
        if (!hasCode(error, 'daemon-unreachable')) throw error;
        ready = false;
        const silentSeconds = Math.round((clock.monotonic() - seenAt) / 1_000);
        lines = [`nothing has answered at ${watching.where} for ${silentSeconds} s; trying again`];
      }
    }
  } finally {
    if (terminal.interactive) terminal.write(LEAVE_SCREEN);
  }
  if (terminal.interactive) for (const line of lines) terminal.print(line); // what it was when it was left
  return ready;
}

async function picture({ ask, terminal, clock }: Watching): Promise<{ ready: boolean; lines: string[] }> {
  const { status, members } = await ask();
  const lines = drawStatus(status, members, { now: clock.now(), colour: terminal.colour });
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
  const drawn = shown.map((line) => `${cutToWidth(line, terminal.columns)}${CLEAR_LINE_END}\n`);
  terminal.write(`${TO_TOP}${drawn.join('')}${CLEAR_BELOW}`);
}
