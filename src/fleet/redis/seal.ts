/**
 * Signs what replicas write about an instance. The key comes from the instance's own secret, which every replica that
 * draws from it has and the store has not. So members that get the instance's credentials come from a draw of this fleet.
 * The store can still withhold, repeat or reorder what the fleet wrote.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { InstanceSettings } from '../schemas.ts';

export interface FleetInstance {
  readonly key: string;
  /** The instance's own secret: its password or key, or the URL of a link. */
  readonly secret: string;
  readonly settings: Omit<InstanceSettings, 'source'>;
}

const PURPOSE = 'noria fleet facts';

export class Seal {
  readonly #key: Buffer;
  readonly #scope: string;

  /** @param scope - the fleet, and the instances whose secrets make the key. */
  constructor(fleet: string, instances: readonly FleetInstance[]) {
    const secrets = instances.map(({ key, secret }) => [key, secret]);
    this.#key = createHmac('sha256', JSON.stringify(secrets)).update(PURPOSE).digest();
    this.#scope = JSON.stringify([fleet, ...instances.map(({ key }) => key)]);
  }

  /** @param parts - what is signed, with its place: a text must not be valid elsewhere. */
  sign(...parts: readonly string[]): string {
    return this.#mac(parts).toString('base64url');
  }

  isValid(mac: string, ...parts: readonly string[]): boolean {
    const given = Buffer.from(mac, 'base64url');
    const right = this.#mac(parts);
    return given.length === right.length && timingSafeEqual(given, right);
  }

  #mac(parts: readonly string[]): Buffer {
    const hmac = createHmac('sha256', this.#key).update(this.#scope);
    for (const part of parts) hmac.update(`\n${part.length} ${part}`);
    return hmac.digest().subarray(0, 18);
  }
}
