/**
 * The 16-character key of an instance, an application or an account, from its password.
 *
 * It is the middle of the MD5: characters 8 to 23 of the lower-case hexadecimal digest of the password in UTF-8. The specification
 * says only "16-character MD5 form"; that it is this part of the digest is what working clients of the service agree on.
 */
import { createHash } from 'node:crypto';
import { describeError, NoriaError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';

const KEY = /^[0-9a-f]{16}$/i;

/** Whether `text` has the form of a key: 16 hexadecimal digits, in either case. */
export function isKey(text: string): boolean {
  return KEY.test(text);
}

/** A key as given by a person, in the lower case that the service wants; undefined when it has not the form of one. */
export function readKey(text: string): Secret | undefined {
  return isKey(text) ? new Secret(text.toLowerCase()) : undefined;
}

/**
 * The key of a password.
 *
 * @param md5 - the lower-case hexadecimal digest of a text; given by tests only.
 * @throws NoriaError bad-config where this Node refuses MD5 (OpenSSL in FIPS mode).
 */
export function keyFromPassword(password: Secret, md5: (text: string) => string = md5Hex): Secret {
  try {
    return new Secret(md5(password.reveal()).slice(8, 24));
  } catch (cause) {
    throw new NoriaError(
      'bad-config',
      `the key cannot be derived from the password: MD5 is refused here (${describeError(cause)}), as OpenSSL does in FIPS mode; give the 16-character key itself instead of the password`,
      { cause },
    );
  }
}

function md5Hex(text: string): string {
  return createHash('md5').update(text, 'utf8').digest('hex');
}
