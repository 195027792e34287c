/** The 16-character MD5 form of a password: the middle sixteen of its 32 lower-case hexadecimal digits. */
import { createHash } from 'node:crypto';

/** @param password - as the console shows it; hashed as UTF-8. */
export function akeyOf(password: string): string {
  return createHash('md5').update(password, 'utf8').digest('hex').substring(8, 24);
}
