/**
 * One instance (or free application) that the stand-in knows: its settings, its condition, its books and its members.
 */
import type { Clock } from '../core/clock.ts';
import { akeyOf } from './akey.ts';
import type { InstanceMembers } from './instance-members.ts';
import { ClientLock, ExitLedger, RateLimiter } from './limits.ts';
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
  readonly ledger: ExitLedger;
  readonly clients: ClientLock;
  readonly members: InstanceMembers;
  readonly #pace: RateLimiter;

  constructor(options: SettledOptions, clock: Clock, fleet: InstanceMembers) {
    this.id = options.id;
    this.product = options.product;
    this.password = options.password;
    this.akey = akeyOf(options.password);
    this.operation = operationOf(options.product);
    this.options = options;
    this.condition = conditionOf(options);
    const { paceMs } = options;
    this.#pace = new RateLimiter(
      paceMs === undefined ? this.operation.rateLimit : { calls: 1, withinMs: paceMs },
      clock,
    );
    this.ledger = new ExitLedger(clock);
    this.clients = new ClientLock(clock);
    this.members = fleet;
  }

  /** Notes the arrival of a call. @returns whether it came in time. */
  takePace(): boolean {
    return this.#pace.take();
  }
}
