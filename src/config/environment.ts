/** Replaces references to environment variables in values of the configuration. All functions are pure. */

export type Environment = Readonly<Record<string, string | undefined>>;

interface Substituted {
  readonly text: string;
  readonly variables: readonly string[];
  readonly problems: readonly string[];
}

/**
 * Matches references. Also matches `$${`, which means the text `${`, and a `${` without `}`, which noria reports as an
 * error.
 */
const REFERENCE = /\$\$\{|\$\{([^}]*)(\}?)/g;
const NAME_AND_DEFAULT = /^([A-Za-z_][A-Za-z0-9_]*)(?::-([\s\S]*))?$/;

/**
 * Replaces each reference `${NAME}` or `${NAME:-default}` with the value of the variable.
 *
 * As in a shell, the text after `:-` is the default if the variable is unset or empty. Reports an unset variable
 * without a default, and any other form of reference. References in the value of a variable are not replaced.
 */
export function substitute(text: string, environment: Environment): Substituted {
  const variables: string[] = [];
  const problems: string[] = [];
  const replaced = text.replace(REFERENCE, (whole, inside: string | undefined, end: string | undefined) => {
    if (inside === undefined) return '${';
    const [, name, fallback] = NAME_AND_DEFAULT.exec(inside) ?? [];
    if (name === undefined || end === '') {
      problems.push(
        'contains an invalid reference; write ${NAME} or ${NAME:-default}, or $${ for a literal ${',
      );
      return whole;
    }
    variables.push(name);
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (fallback !== undefined) return value === undefined || value === '' ? fallback : value;
    if (value === undefined)
      problems.push(
        `the environment variable ${name} is not set; run export ${name}=… before noria, or write \${${name}:-default}`,
      );
    return value ?? '';
  });
  return { text: replaced, variables, problems };
}
