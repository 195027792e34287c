import type { Terminal } from '../../src/commands/terminal.ts';

export interface FakeTerminal extends Terminal {
  /** All of standard output. */
  printed(): string;
  /** All of standard error. */
  errors(): string;
}

/** A terminal that records its output; `input` is its standard input. */
export function fakeTerminal(
  given: { readonly env?: Readonly<Record<string, string>>; readonly input?: string } = {},
): FakeTerminal {
  const printed: string[] = [];
  const errors: string[] = [];
  const { env = {}, input = '' } = given;
  return {
    print: (line) => void printed.push(`${line}\n`),
    write: (text) => void printed.push(text),
    printError: (line) => void errors.push(`${line}\n`),
    interactive: false,
    colour: false,
    columns: 80,
    rows: 24,
    env,
    readHidden: async () => input,
    printed: () => printed.join(''),
    errors: () => errors.join(''),
  };
}
