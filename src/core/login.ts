import type { Secret } from './secret.ts';

/** The user name and the password have 1 to 255 bytes each (RFC 1929). */
export interface Login {
  readonly username: string;
  readonly password: Secret;
}
