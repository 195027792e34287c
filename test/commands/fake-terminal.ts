import type { Terminal } from '../../src/commands/terminal.ts';

export interface FakeTerminal extends Terminal {
  /** Everything on standard output, and on standard error. */
  printed(): string;
  told(): string;
}

/** A terminal that keeps what it is given; `input` is what stands on its standard input. */
export function fakeTerminal(
  given: { readonly env?: Readonly<Record<string, string>>; readonly input?: string } = {},
): FakeTerminal {
  const printed: string[] = [];
  const told: string[] = [];
  const { env = {}, input = '' } = given;
  return {
    print: (line) => void printed.push(`${line}\n`),
    write: (text) => void printed.push(text),
    tell: (line) => void told.push(`${line}\n`),
    interactive: false,
    colour: false,
    columns: 80,
    rows: 24,
    env,
    readInput: async () => input,
    readHidden: async () => input,
    printed: () => printed.join(''),
    told: () => told.join(''),
  };
}
