import { NoriaError } from '../core/faults.ts';
import type { Login, Secret } from '../core/secret.ts';
import { keyFromPassword } from '../service/request.ts';
import type { Problems } from './problems.ts';

/** Returns undefined if there is no valid password; `problems` then says why. */
export function resolveUser(
  { username, password }: { readonly username: string; readonly password: Secret | undefined },
  path: string,
  problems: Problems,
): Login | undefined {
  if (password !== undefined) return { username, password };
  if (!problems.has(path)) {
    const wanted = [`${path}.password`, `${path}.passwordFile`];
    problems.missing(path, 'has no password; set password or passwordFile', { wanted });
  }
  return undefined;
}

/** The key, given or derived from the password. Undefined if there is no valid key; `problems` then says why. */
export function resolveKey(
  { password, key }: { readonly password: Secret | undefined; readonly key: Secret | undefined },
  { path, keyName }: { readonly path: string; readonly keyName: 'key' | 'akey' },
  problems: Problems,
): Secret | undefined {
  const derived = password && deriveKey(password, `${path}.password`, problems);
  if (key !== undefined && derived !== undefined && key.reveal() !== derived.reveal()) {
    problems.error(`${path}.${keyName}`, 'does not match the password; keep one of them');
  }
  const found = key ?? derived;
  const names = ['password', 'passwordFile', keyName, `${keyName}File`];
  const wanted = names.map((name) => `${path}.${name}`);
  if (found === undefined && !wanted.some((one) => problems.has(one))) {
    problems.missing(path, `has no key; set one of ${names.join(', ')}`, { wanted });
  }
  return found;
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
