/**
 * One instance (or free application) of the service: its settings, its state at the service, its limits and its
 * members.
 */
import { createHash } from 'node:crypto';
import type { Clock } from '../core/clock.ts';
import type { InstanceMembers } from './instance-members.ts';
import { ClientLock, ExitLedger, RateLimiter } from './limits.ts';
import { type Operation, operationOf, type SandboxProduct } from './operations.ts';
import { type Condition, type IdentifiedOptions, initialCondition } from './settings.ts';

export class Instance {
  readonly id: string;
  readonly product: SandboxProduct;
  readonly password: string;
  /** The key that each call must send. */
  readonly akey: string;
  readonly operation: Operation;
  readonly options: IdentifiedOptions;
  readonly condition: Condition;
  readonly rateLimiter: RateLimiter;
  readonly ledger: ExitLedger;
  readonly clientLock: ClientLock;
  readonly members: InstanceMembers;

  constructor(options: IdentifiedOptions, clock: Clock, members: InstanceMembers) {
    const { id, product, password, paceMs } = options;
    this.id = id;
    this.product = product;
    this.password = password;
    this.akey = akeyOf(password);
    this.operation = operationOf(product);
    this.options = options;
    this.condition = initialCondition(options);
    const rateLimit = paceMs === undefined ? this.operation.rateLimit : { calls: 1, withinMs: paceMs };
    this.rateLimiter = new RateLimiter(rateLimit, clock);
    this.ledger = new ExitLedger(clock);
    this.clientLock = new ClientLock(clock);
    this.members = members;
  }
}

/** Returns the key: the middle 16 of the 32 hexadecimal digits of the MD5 hash of the password, encoded in UTF-8. */
export function akeyOf(password: string): string {
  return createHash('md5').update(password, 'utf8').digest('hex').substring(8, 24);
}
