/**
 * `noria key`: prints the 16-character key of a password. Reads the password from standard input, because an argument
 * would be visible in the history of the shell.
 */
import type { Command } from 'commander';
import { NoriaError } from '../core/faults.ts';
import { Secret } from '../core/secret.ts';
import { keyFromPassword } from '../service/request.ts';
import type { CommandContext } from './command.ts';
import { EXIT } from './terminal.ts';

export function addKeyCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('key')
    .description('print the 16-character key of a password read from standard input (hidden on a terminal)')
    .addHelpText('after', '\nExamples:\n  noria key\n  noria key < password-file')
    .action(
      action(async () => {
        const typed = await terminal.readHidden('password: ');
        const password = typed.replace(/\r?\n$/, '');
        if (password === '') throw new NoriaError('bad-usage', 'no password on standard input');
        terminal.print(keyFromPassword(new Secret(password)).reveal());
        return EXIT.fine;
      }),
    );
}
