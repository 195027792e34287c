/** The manual page and the completions of the commands, generated from the commands. */
import type { Command, Option } from 'commander';
import { buildProgram, runProgram } from '../../src/commands/program.ts';
import type { Terminal } from '../../src/commands/terminal.ts';
import { readVersion } from '../../src/core/version.ts';

/** A terminal that keeps what a command prints. */
function recordingTerminal(): { readonly terminal: Terminal; readonly printed: () => string } {
  const lines: string[] = [];
  const terminal: Terminal = {
    print: (line) => void lines.push(`${line}\n`),
    write: (text) => void lines.push(text),
    printError: (line) => {
      throw new Error(line);
    },
    interactive: false,
    colour: false,
    columns: 80,
    rows: 24,
    env: {},
    readHidden: () => Promise.reject(new TypeError('no input')),
  };
  return { terminal, printed: () => lines.join('') };
}

export async function completionFor(shell: 'bash' | 'zsh' | 'fish'): Promise<string> {
  const { terminal, printed } = recordingTerminal();
  const code = await runProgram(['completion', shell], terminal);
  if (code !== 0) throw new Error(`noria completion ${shell} ended with ${code}`);
  return printed();
}

/** Returns noria(1), in the macros of man(7). */
export async function manualPage(): Promise<string> {
  const program = await buildProgram([], recordingTerminal().terminal, () => {});
  const lines = [
    `.TH NORIA 1 "" "noria ${readVersion()}" "User Commands"`,
    '.SH NAME',
    'noria \\- a local rotating forward proxy over short-lived proxy IPs',
    '.SH SYNOPSIS',
    '.B noria',
    'COMMAND [OPTION]...',
    '.SH DESCRIPTION',
    roff(program.description()),
    'The whole documentation is on the dashboard of a running noria, at /docs/README.md.',
    '.SH OPTIONS OF EVERY COMMAND',
    ...[...program.options, program.createOption('--help', 'print help')].flatMap(optionLines),
    '.SH COMMANDS',
    ...program.commands.flatMap(commandLines),
    '.SH FILES',
    '.TP',
    '.I ./noria.yaml, /etc/noria/noria.yaml',
    'The configuration, if -c names no other file.',
    '.SH EXIT STATUS',
    ...[
      'success',
      'the operation failed',
      'bad usage or configuration',
      'noria, the service or the store is unreachable',
    ].flatMap((meaning, code) => ['.TP', `.B ${code}`, meaning]),
  ];
  return `${lines.join('\n')}\n`;
}

function commandLines(command: Command): string[] {
  const usage = [
    command.name(),
    ...command.registeredArguments.map((argument) => {
      const text = `${argument.name()}${argument.variadic ? '...' : ''}`;
      return argument.required ? text : `[${text}]`;
    }),
  ];
  return [
    `.SS ${roff(`noria ${usage.join(' ')}`)}`,
    roff(sentence(command.description())),
    ...command.registeredArguments
      .filter(({ description }) => description !== '')
      .flatMap((argument) => ['.TP', `.I ${roff(argument.name())}`, roff(argument.description)]),
    ...command.options.flatMap(optionLines),
  ];
}

function optionLines({
  flags,
  description,
  argChoices,
  defaultValue,
  defaultValueDescription,
}: Option): string[] {
  const facts = [
    ...(argChoices === undefined ? [] : [`one of ${argChoices.join(', ')}`]),
    ...(defaultValue === undefined || defaultValue === false
      ? []
      : [`default: ${defaultValueDescription ?? String(defaultValue)}`]),
  ];
  return [
    '.TP',
    `.B ${roff(flags)}`,
    roff(`${description}${facts.length === 0 ? '' : ` (${facts.join('; ')})`}`),
  ];
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return first.endsWith('.') ? first : `${first}.`;
}

/** Escapes what roff(7) interprets. */
function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1');
}
