import { NoriaError } from '../core/faults.ts';
import type { Login, Secret } from '../core/secret.ts';
import { keyFromPassword } from '../service/request.ts';
import type { FileReader } from './files.ts';
import type { Problems } from './problems.ts';
import { key, password } from './secret-scalars.ts';

/** The input of every function that resolves a section. */
export interface ResolveContext {
  readonly problems: Problems;
  readonly files: FileReader;
}

interface UserSection {
  readonly username: string;
  readonly password: Secret | undefined;
  readonly passwordFile: string | undefined;
}

/**
 * @param path - the path of the user in the file.
 * @returns undefined if there is no valid password; `problems` then says why.
 */
export function resolveUser(
  user: UserSection,
  path: string,
  { problems, files }: ResolveContext,
): Login | undefined {
  const keys = { plain: user.password, file: user.passwordFile };
  const found = files.readSecret(`${path}.password`, keys, password());
  if (found !== undefined) return { username: user.username, password: found };
  if (!problems.has(path)) {
    const wanted = [`${path}.password`, `${path}.passwordFile`];
    problems.missing(path, 'has no password; set password or passwordFile', { wanted });
  }
  return undefined;
}

/** Each secret is in the configuration, or in a file that the configuration names. */
interface KeySection {
  readonly password: Secret | undefined;
  readonly passwordFile: string | undefined;
  readonly key: Secret | undefined;
  readonly keyFile: string | undefined;
}

/**
 * Returns the key of an instance or account, from the configuration or derived from the password. If the configuration
 * has a key and a password, they must match.
 *
 * @param keyName - the name of the key in the section.
 * @returns undefined if there is no valid key; `problems` then says why.
 */
export function resolveKey(
  section: KeySection,
  { path, keyName }: { readonly path: string; readonly keyName: 'key' | 'akey' },
  { problems, files }: ResolveContext,
): { readonly key: Secret; readonly password: Secret | undefined } | undefined {
  const plain = files.readSecret(
    `${path}.password`,
    { plain: section.password, file: section.passwordFile },
    password(),
  );
  const given = files.readSecret(`${path}.${keyName}`, { plain: section.key, file: section.keyFile }, key());
  const derived = plain && deriveKey(plain, `${path}.password`, problems);
  if (given !== undefined && derived !== undefined && given.reveal() !== derived.reveal()) {
    problems.error(`${path}.${keyName}`, 'does not match the password; keep one of them');
  }
  const found = given ?? derived;
  if (found !== undefined) return { key: found, password: plain };
  const names = ['password', 'passwordFile', keyName, `${keyName}File`];
  const wanted = names.map((name) => `${path}.${name}`);
  if (!wanted.some((one) => problems.has(one))) {
    problems.missing(path, `has no key; set one of ${names.join(', ')}`, { wanted });
  }
  return undefined;
}

function deriveKey(plain: Secret, path: string, problems: Problems): Secret | undefined {
  try {
    return keyFromPassword(plain);
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    problems.error(path, error.message);
    return undefined;
  }
}
