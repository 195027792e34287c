/**
 * One instance (or free application) that the stand-in knows: its settings, its condition, its books and its members.
 */
import type { Clock } from '../core/clock.ts';
import { sixteenOf } from './akey.ts';
import type { Fleet } from './instance-members.ts';
import { CallLedger, ClientWatch, PaceKeeper } from './limits.ts';
import { type Operation, operationOf, type SandboxProduct } from './operations.ts';
import { type Condition, conditionOf, type SettledOptions } from './settings.ts';

export class Instance {
  readonly id: string;
  readonly product: SandboxProduct;
  readonly password: string;
  /** The key that calls carry: derived from the password. */
  readonly akey: string;
  readonly operation: Operation;
  readonly options: SettledOptions;
  readonly condition: Condition;
  readonly ledger: CallLedger;
  readonly clients: ClientWatch;
  readonly fleet: Fleet;
  readonly #pace: PaceKeeper;

  constructor(options: SettledOptions, clock: Clock, fleet: Fleet) {
    this.id = options.id;
    this.product = options.product;
    this.password = options.password;
    this.akey = sixteenOf(options.password);
    this.operation = operationOf(options.product);
    this.options = options;
    this.condition = conditionOf(options);
    const { paceMs } = options;
    this.#pace = new PaceKeeper(
      paceMs === undefined ? this.operation.pace : { calls: 1, withinMs: paceMs },
      clock,
    );
    this.ledger = new CallLedger(clock);
    this.clients = new ClientWatch(clock);
    this.fleet = fleet;
  }

  /** Notes the arrival of a call. @returns whether it came in time. */
  takePace(): boolean {
    return this.#pace.take();
  }
}
