/** One call of the service from the command line: with a client of its own, within the pace that a daemon shares. */
import type { Config, SourceConfig } from '../config/config.ts';
import { holdingClock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import { systemRandom } from '../core/random.ts';
import { callOf, refusesOf } from '../daemon/part-options.ts';
import { Pace, paceKey } from '../refill/pace.ts';
import type { Settlement } from '../refill/pace-rule.ts';
import { ServiceClient } from '../service/client.ts';
import { meaningOf, SUCCESS } from '../service/codes.ts';
import type { OperationNumber } from '../service/operations.ts';
import type { ServiceAddress } from '../service/request.ts';
import { openState } from '../state/folder.ts';
import type { Terminal } from './terminal.ts';

const MS_PER_SECOND = 1_000;

/** What the pace of a call is kept for: an instance (or an account) at a service address. */
export interface PacedCall extends ServiceAddress {
  readonly instance: string;
  readonly intervalMs: number;
}

/** Makes one call when the pace allows it, telling how long that takes; written down where a daemon on the same state folder sees it. */
export async function callWithinPace<Answer extends { readonly code: string }>(
  config: Config,
  paced: PacedCall,
  terminal: Terminal,
  call: (client: ServiceClient) => Promise<Answer>,
  settle: (answer: Answer) => Settlement,
): Promise<Answer> {
  const { timeoutMs } = config.service;
  const state = await openState({
    dir: config.state?.dir,
    daemon: false,
    clock: holdingClock,
    warn: (message) => terminal.tell(`noria: ${message}`),
  });
  const client = new ServiceClient({
    timeoutMs,
    clock: holdingClock,
    refuses: refusesOf(config, []),
  });
  const pace = new Pace(paceKey(paced), {
    store: state.pace,
    clock: holdingClock,
    random: systemRandom,
  });
  try {
    const turn = {
      rule: { intervalMs: paced.intervalMs, callTimeoutMs: timeoutMs },
      onWait: (ms: number) =>
        terminal.tell(`the pace allows the next call in ${Math.ceil(ms / MS_PER_SECOND)} s: waiting`),
      call: async () => {
        const result = await call(client);
        return { result, settlement: settle(result) };
      },
    };
    const answer = await pace.take(turn, new AbortController().signal);
    if (answer === undefined)
      throw new NoriaError('pace-held', 'the call was given up before the pace allowed it');
    return answer;
  } finally {
    client.close();
    await state.close();
  }
}

/** @throws NoriaError service-refused naming the code, what it means and the service's own words. */
export function requireSuccess(
  operation: OperationNumber,
  answer: { readonly code: string; readonly message: string },
): void {
  if (answer.code === SUCCESS) return;
  const { summary, advice } = meaningOf(operation, answer.code);
  const own = answer.message === '' ? '' : ` (the service's words: ${answer.message})`;
  throw new NoriaError('service-refused', `code ${answer.code}: ${summary}${own} ${advice}`, {
    context: { code: answer.code },
  });
}

/** The source of that name. @throws NoriaError bad-usage naming those there are. */
export function sourceNamed(config: Config, name: string): SourceConfig {
  const source = config.sources.find((candidate) => candidate.name === name);
  if (source !== undefined) return source;
  const known = config.sources.map((candidate) => candidate.name).join(', ');
  throw new NoriaError('bad-usage', `there is no source ${name} in ${config.file}; there are: ${known}`);
}

/** What the pace of a source's calls is kept for. */
export function pacedAs(config: Config, source: SourceConfig): PacedCall {
  return { ...callOf(config, source), intervalMs: source.intervalMs };
}
