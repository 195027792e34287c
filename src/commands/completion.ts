/** `noria completion SHELL`: a completion script made from the tree of commands itself. */
import { Argument, type Command } from 'commander';
import type { CommandContext } from './context.ts';
import { EXIT } from './terminal.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

interface Words {
  readonly name: string;
  readonly about: string;
  readonly flags: readonly { readonly flag: string; readonly about: string }[];
}

export function addCompletionCommand(program: Command, { action, terminal }: CommandContext): void {
  program
    .command('completion')
    .description('print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'which shell').choices([...SHELLS]))
    .addHelpText(
      'after',
      '\nExamples:\n  noria completion bash > ~/.local/share/bash-completion/completions/noria\n  noria completion zsh > "${fpath[1]}/_noria"\n  noria completion fish > ~/.config/fish/completions/noria.fish',
    )
    .action(
      action(async (shell: Shell) => {
        terminal.print(
          SCRIPTS[shell](
            program.commands.map((command) => wordsOf(command, program)),
            wordsOf(program),
          ),
        );
        return EXIT.fine;
      }),
    );
}

function wordsOf(command: Command, parent?: Command): Words {
  const options = [...command.options, ...(parent?.options ?? [])];
  const flags = options.flatMap(({ long, description }) =>
    typeof long === 'string' ? [{ flag: long, about: description }] : [],
  );
  return {
    name: command.name(),
    about: command.description(),
    flags: [...flags, { flag: '--help', about: 'print help' }],
  };
}

const SCRIPTS: { readonly [S in Shell]: (commands: readonly Words[], top: Words) => string } = {
  bash: (commands, top) =>
    [
      '_noria() {',
      '  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}',
      '  if [ "$COMP_CWORD" -eq 1 ]; then',
      `    COMPREPLY=($(compgen -W "${[...commands.map(({ name }) => name), ...flagsOf(top)].join(' ')}" -- "$word"))`,
      '    return',
      '  fi',
      '  case $command in',
      ...commands.map(
        ({ name, flags }) =>
          `    ${name}) COMPREPLY=($(compgen -f -W "${flags.map(({ flag }) => flag).join(' ')}" -- "$word")) ;;`,
      ),
      '  esac',
      '}',
      'complete -o filenames -F _noria noria',
    ].join('\n'),
  zsh: (commands, top) =>
    [
      '#compdef noria',
      '_noria() {',
      '  if (( CURRENT == 2 )); then',
      '    local -a commands=(',
      ...commands.map(({ name, about }) => `      ${quote(`${name}:${about}`)}`),
      '    )',
      "    _describe 'command' commands",
      `    compadd -- ${flagsOf(top).join(' ')}`,
      '    return',
      '  fi',
      '  case $words[2] in',
      ...commands.map(
        ({ name, flags }) => `    ${name}) compadd -- ${flags.map(({ flag }) => flag).join(' ')}; _files ;;`,
      ),
      '  esac',
      '}',
      '_noria "$@"',
    ].join('\n'),
  fish: (commands) =>
    commands
      .flatMap(({ name, about, flags }) => [
        `complete -c noria -n __fish_use_subcommand -a ${name} -d ${quote(about)}`,
        ...flags.map(
          (flag) =>
            `complete -c noria -n '__fish_seen_subcommand_from ${name}' -l ${flag.flag.slice(2)} -d ${quote(flag.about)}`,
        ),
      ])
      .join('\n'),
};

const flagsOf = ({ flags }: Words) => flags.map(({ flag }) => flag);
const quote = (text: string) => `'${text.replaceAll("'", '')}'`;
