/** Takes one turn of a pace, as a source does: waits, opens the connection, claims the call and sends it. */
import type { Pace, Place } from '../../src/refill/pace.ts';
import type { PaceRule, Settlement } from '../../src/refill/pace-rule.ts';

export interface TestTurn<T> {
  readonly rule: PaceRule;
  /** Whether the call is still wanted after a wait. */
  isWanted?(): boolean;
  /** Opens the connection. With undefined, the turn ends without a call. */
  open(): Promise<TestCall<T> | undefined>;
  onWait?(ms: number): void;
}

interface TestCall<T> {
  send(permit: Place): Promise<{ readonly result: T; readonly settlement: Settlement }>;
  close(): void;
}

const NOT_SENT = { result: undefined, settlement: { kind: 'done' } } as const;

export async function take<T>(pace: Pace, turn: TestTurn<T>, signal: AbortSignal): Promise<T | undefined> {
  const place = pace.enter(turn.rule);
  try {
    for (;;) {
      let hasWaited = false;
      for await (const ms of place.waits(signal)) {
        if (hasWaited && turn.isWanted?.() === false) return undefined;
        hasWaited = true;
        turn.onWait?.(ms);
      }
      if (signal.aborted || (hasWaited && turn.isWanted?.() === false)) return undefined;
      const call = await turn.open();
      if (call === undefined) return undefined;
      try {
        const send = async (permit: Place) => (signal.aborted ? NOT_SENT : call.send(permit));
        const sent = await place.send(send, ({ settlement }) => settlement);
        if (sent !== undefined) return sent.result.result;
      } finally {
        call.close();
      }
    }
  } finally {
    await place.leave();
  }
}
