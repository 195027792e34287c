/** Replaces `${NAME}` and `${NAME:-default}` in values of the configuration. Pure. */

/** The variables of the process, or of a test. */
export type Environment = Readonly<Record<string, string | undefined>>;

interface Substituted {
  readonly text: string;
  /** The names of the variables that the text refers to. */
  readonly variables: readonly string[];
  readonly problems: readonly string[];
}

/** `$${` is a literal `${`. A `${` without `}` matches, too, and is reported. */
const REFERENCE = /\$\$\{|\$\{([^}]*)(\}?)/g;
const NAME_AND_DEFAULT = /^([A-Za-z_][A-Za-z0-9_]*)(?::-([\s\S]*))?$/;

/**
 * Replaces each reference by the value of its variable.
 *
 * As in a shell, `:-` precedes a default for a variable that is unset or empty. An unset variable without a default is
 * a problem. So is every other form of reference. A `${` in a value is not replaced again.
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
