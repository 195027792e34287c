import type { Secret } from './secret.ts';

export interface Login {
  readonly username: string;
  readonly password: Secret;
}
