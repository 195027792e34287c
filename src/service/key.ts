/**
 * Derives the 16-character key of an instance, an application or an account from its password.
 *
 * The key is the middle of an MD5: characters 9 to 24 of the lower-case hexadecimal digest of the password in UTF-8.
 * The specification says only "16-character MD5 form"; working clients of the service use this part of the digest.
 */
import { createHash } from 'node:crypto';
import { describeError, NoriaError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';

const KEY = /^[0-9a-f]{16}$/i;

/** Whether the text looks like a key: 16 hexadecimal digits in any letter case. */
export function isKey(text: string): boolean {
  return KEY.test(text);
}

/**
 * @param md5 - returns the lower-case hexadecimal digest of a text; only tests pass it.
 * @throws NoriaError bad-config if Node refuses MD5 (OpenSSL in FIPS mode).
 */
export function keyFromPassword(password: Secret, md5: (text: string) => string = md5Hex): Secret {
  try {
    return new Secret(md5(password.reveal()).slice(8, 24));
  } catch (cause) {
    throw new NoriaError(
      'bad-config',
      `cannot derive the key from the password: Node refused MD5 (${describeError(cause)}), as OpenSSL does in FIPS mode; configure the 16-character key instead of the password`,
      { cause },
    );
  }
}

function md5Hex(text: string): string {
  return createHash('md5').update(text, 'utf8').digest('hex');
}
