/** `${NAME}` and `${NAME:-default}` in values of the configuration. Pure. */

/** The variables of the process, or of a test. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** A text with its references replaced. */
export interface Substituted {
  readonly text: string;
  /** The names that were looked up. */
  readonly variables: readonly string[];
  readonly problems: readonly string[];
}

/** `$${` is a literal `${`; a `${` without its end is a mistake to be told. */
const REFERENCE = /\$\$\{|\$\{([^}]*)(\}?)/g;
const NAME_AND_DEFAULT = /^([A-Za-z_][A-Za-z0-9_]*)(?::-([\s\S]*))?$/;

/**
 * Replaces each reference by the variable's value.
 *
 * As in a shell, `:-` gives a default for a variable that is unset or empty. One that is unset and has no default is a
 * problem, and so is every other form. Values are taken as they are: a `${` in one is not looked up again.
 */
export function substitute(text: string, environment: Environment): Substituted {
  const variables: string[] = [];
  const problems: string[] = [];
  const replaced = text.replace(REFERENCE, (whole, inside: string | undefined, end: string | undefined) => {
    if (inside === undefined) return '${';
    const [, name, fallback] = NAME_AND_DEFAULT.exec(inside) ?? [];
    if (name === undefined || end === '') {
      problems.push('has a ${ that is neither ${NAME} nor ${NAME:-default}; write $${ for a literal one');
      return whole;
    }
    variables.push(name);
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (fallback !== undefined) return value === undefined || value === '' ? fallback : value;
    if (value === undefined)
      problems.push(`the environment variable ${name} is not set, and \${${name}} has no default`);
    return value ?? '';
  });
  return { text: replaced, variables, problems };
}
