/** The input and output of a command. Results go to standard output, and diagnostics to standard error. */
import { faultTexts, type Language, languageOf, translate } from '../core/chinese.ts';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import { escapeForTerminal } from '../core/printable.ts';

export interface Terminal {
  print(line: string): void;
  write(text: string): void;
  printError(line: string): void;
  readonly interactive: boolean;
  readonly colour: boolean;
  readonly columns: number;
  readonly rows: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Reads one line without echo from a terminal. If standard input is not a terminal, reads all of it. */
  readHidden(prompt: string): Promise<string>;
}

export const EXIT = { fine: 0, failed: 1, usage: 2, unreachable: 3 } as const;

const EXIT_OF: { readonly [Code in FaultCode]?: number } = {
  'bad-usage': EXIT.usage,
  'bad-config': EXIT.usage,
  'daemon-unreachable': EXIT.unreachable,
  'service-transport': EXIT.unreachable,
  'fleet-store-lost': EXIT.unreachable,
};

/** Where the usual advice fits only a running noria, which for example connects to the store again by itself. */
const ADVICE_OF: { readonly [Code in FaultCode]?: string } = {
  'fleet-store-lost':
    'Check fleet.url, that the store runs and answers, and that this machine can reach it; then run the command again.',
  'service-transport':
    "Check service.baseUrl, or the source's own baseUrl, host or url, and the network; then run the command again.",
  'service-blocked':
    'Stop other programs that call the service from this machine, and wait before you run the command again.',
};

/** The language of reasons and advice, from the locale. Results for other programs stay in English. */
export function languageOfTerminal({ env }: Pick<Terminal, 'env'>): Language {
  return languageOf(env['LC_ALL'] || env['LC_MESSAGES'] || env['LANG']);
}

export function printResult(
  terminal: Pick<Terminal, 'print'>,
  { json }: { readonly json?: boolean },
  result: unknown,
  lines: () => readonly string[],
  indent = 2,
): void {
  for (const line of json === true ? [JSON.stringify(result, undefined, indent)] : lines())
    terminal.print(line);
}

export function badUsage(message: string): NoriaError {
  return new NoriaError('bad-usage', message);
}

export function exitCodeOf(error: unknown): number {
  return error instanceof NoriaError ? (EXIT_OF[error.code] ?? EXIT.failed) : EXIT.failed;
}

export function printFailure(terminal: Terminal, error: unknown): void {
  if (!(error instanceof NoriaError)) {
    terminal.printError(error instanceof Error ? (error.stack ?? error.message) : String(error));
    return;
  }
  const language = languageOfTerminal(terminal);
  if (error.code === 'bad-config') {
    terminal.printError(error.message);
    return;
  }
  const own = ADVICE_OF[error.code];
  const advice = own === undefined ? faultTexts(error.code, language).advice : translate(own, language);
  terminal.printError(`noria: ${translate(error.message, language)}`);
  terminal.printError(`  ${advice}`);
}

/** If the reader of standard output closes it, as `head` does, the process ends silently, as by SIGPIPE. */
export function openTerminal(): Terminal {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(SIGPIPE_EXIT);
    throw error;
  });
  return processTerminal;
}

const SIGPIPE_EXIT = 141;

const processTerminal: Terminal = {
  print: (line) => void process.stdout.write(`${escapeForTerminal(line)}\n`),
  write: (text) => void process.stdout.write(text),
  printError: (line) => void process.stderr.write(`${escapeForTerminal(line)}\n`),
  interactive: process.stdout.isTTY === true,
  colour: process.stdout.isTTY === true && (process.env['NO_COLOR'] ?? '') === '', // see https://no-color.org
  get columns() {
    // A terminal without a size reports 0 columns.
    return process.stdout.columns || (this.interactive ? 80 : Number.POSITIVE_INFINITY);
  },
  get rows() {
    return process.stdout.rows ?? 24;
  },
  env: process.env,
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

async function readTyped(input: NodeJS.ReadStream): Promise<string> {
  let typed = '';
  input.setEncoding('utf8');
  for await (const keys of input.iterator({ destroyOnReturn: false })) {
    for (const key of String(keys)) {
      if (key === '\r' || key === '\n' || key === '\u0004') return typed;
      if (key === '\u0003') throw badUsage('cancelled at the prompt');
      typed = key === '\u007f' || key === '\b' ? typed.slice(0, -1) : typed + key;
    }
  }
  return typed;
}
