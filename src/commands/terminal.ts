/** Where a command reads and writes: results on standard output, diagnostics on standard error, nothing else. */
import { type FaultCode, NoriaError } from '../core/faults.ts';

export interface Terminal {
  /** A result. Adds the line end. */
  print(line: string): void;
  /** Part of a result, as it is: to draw over what was drawn before. */
  write(text: string): void;
  /** A diagnostic. Adds the line end. */
  tell(line: string): void;
  /** Whether standard output is a terminal: tables may be drawn and redrawn. */
  readonly interactive: boolean;
  /** Whether colours may be used on standard output. */
  readonly colour: boolean;
  readonly columns: number;
  readonly rows: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** All of standard input, as text. */
  readInput(): Promise<string>;
  /** One line typed on a terminal, not shown; the whole input when it is not a terminal. */
  readHidden(prompt: string): Promise<string>;
}

/** What the exit code of a command says. */
export const EXIT = { fine: 0, failed: 1, usage: 2, unreachable: 3 } as const;

const EXIT_OF: { readonly [Code in FaultCode]?: number } = {
  'bad-usage': EXIT.usage,
  'bad-config': EXIT.usage,
  'daemon-unreachable': EXIT.unreachable,
  'service-transport': EXIT.unreachable,
};

/** The exit code that a failure stands for. */
export function exitCodeOf(error: unknown): number {
  return error instanceof NoriaError ? (EXIT_OF[error.code] ?? EXIT.failed) : EXIT.failed;
}

/** What a person is told of a failure: what happened, then what to do. A programmer's error shows its stack. */
export function tellFailure(terminal: Terminal, error: unknown): void {
  if (!(error instanceof NoriaError)) {
    terminal.tell(error instanceof Error ? (error.stack ?? error.message) : String(error));
    return;
  }
  terminal.tell(error.code === 'bad-config' ? error.message : `noria: ${error.message}`);
  if (error.code !== 'bad-config') terminal.tell(`  ${error.fault.advice}`);
}

/** The terminal of this process. A reader that leaves early (`| head`) ends the process quietly, as SIGPIPE would. */
export function openTerminal(): Terminal {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(READER_LEFT);
    throw error;
  });
  return processTerminal;
}

/** 128 + SIGPIPE: what a shell reports for a writer whose reader has left. */
const READER_LEFT = 141;

const processTerminal: Terminal = {
  print: (line) => void process.stdout.write(`${line}\n`),
  write: (text) => void process.stdout.write(text),
  tell: (line) => void process.stderr.write(`${line}\n`),
  interactive: process.stdout.isTTY === true,
  colour: process.stdout.isTTY === true && (process.env['NO_COLOR'] ?? '') === '', // no-color.org: present and not empty
  get columns() {
    return process.stdout.columns ?? 80;
  },
  get rows() {
    return process.stdout.rows ?? 24;
  },
  env: process.env,
  readInput,
  readHidden,
};

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

async function readHidden(prompt: string): Promise<string> {
  const { stdin, stderr } = process;
  if (stdin.isTTY !== true) return readInput();
  stderr.write(prompt);
  stdin.setRawMode(true);
  try {
    return await readTyped(stdin);
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write('\n');
  }
}

/** Keys until Enter; Backspace takes one back, Ctrl-C gives up. */
async function readTyped(input: NodeJS.ReadStream): Promise<string> {
  let typed = '';
  input.setEncoding('utf8');
  for await (const keys of input.iterator({ destroyOnReturn: false })) {
    for (const key of String(keys)) {
      if (key === '\r' || key === '\n' || key === '\u0004') return typed;
      if (key === '\u0003') throw new NoriaError('bad-usage', 'given up at the prompt');
      typed = key === '\u007f' || key === '\b' ? typed.slice(0, -1) : typed + key;
    }
  }
  return typed;
}
