/** `noria completion SHELL`: prints a completion script for a shell. */
import type { Command, Option } from 'commander';
import { command } from './command.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** What follows a flag on the command line: nothing, a path, free text, or one of the listed words. */
type FlagValue = 'none' | 'file' | 'free' | readonly string[];
type Flag = ReturnType<typeof flagOf>;
type CommandWords = ReturnType<typeof wordsOf>;
type CommandTree = Readonly<{ commands: readonly CommandWords[]; top: CommandWords }>;

export const completionCommand = command({
  name: 'completion',
  about: 'print a completion script for a shell',
  args: [['<shell>', 'the shell: bash, zsh or fish', SHELLS]],
  examples: [
    'completion bash > ~/.local/share/bash-completion/completions/noria',
    'completion zsh > "${fpath[1]}/_noria"',
    'completion fish > ~/.config/fish/completions/noria.fish',
  ],
  run: async ({ program, terminal }, shell: Shell) => {
    const commands = [...program.commands.map((each) => wordsOf(each, program)), helpOf(program)];
    terminal.print(SCRIPTS[shell]({ commands, top: wordsOf(program) }));
  },
});

function wordsOf(command: Command, parent?: Command) {
  const flags: Flag[] = [...command.options, ...(parent?.options ?? [])].map(flagOf);
  return {
    name: command.name(),
    about: command.description(),
    flags: [...flags, { long: '--help', short: undefined, about: 'print help', value: 'none' as const }],
    choices: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
  };
}

/** commander adds the command `help` but does not list it in `program.commands`. */
function helpOf(program: Command): CommandWords {
  const choices = program.commands.map((command) => command.name());
  return { name: 'help', about: 'show the usage of a command', flags: [], choices };
}

function flagOf({ long, short, flags, required, argChoices, description }: Option) {
  const value: FlagValue = !required ? 'none' : (argChoices ?? (flags.includes('<file>') ? 'file' : 'free'));
  return { long: long ?? '', short, about: description, value };
}

function valueFlags({ commands, top }: CommandTree): readonly Flag[] {
  const all = [top, ...commands].flatMap(({ flags }) => flags).filter(({ value }) => value !== 'none');
  return [...new Map(all.map((flag) => [flag.long, flag])).values()];
}

const spellings = ({ long, short }: Flag) => (short === undefined ? long : `${short}|${long}`);
const completionWords = ({ flags, choices }: CommandWords) =>
  [...choices, ...flags.map(({ long }) => long)].join(' ');
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

const findCommand = ({ commands }: CommandTree, earlier: string) => [
  `  for each in ${earlier}; do`,
  `    case $each in ${commands.map(({ name }) => name).join('|')}) command=$each; break ;; esac`,
  '  done',
];

const SCRIPTS: { readonly [S in Shell]: (tree: CommandTree) => string } = {
  bash: (tree) =>
    [
      '_noria() {',
      '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= each words',
      ...findCommand(tree, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"'),
      '  case $before in',
      ...valueFlags(tree).map((flag) => `    ${spellings(flag)}) ${bashValue(flag.value)}; return ;;`),
      '  esac',
      '  case $command in',
      `    '') words=${quote([...tree.commands.map(({ name }) => name), completionWords(tree.top)].join(' '))} ;;`,
      ...tree.commands.map((command) => `    ${command.name}) words=${quote(completionWords(command))} ;;`),
      '  esac',
      '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")',
      '}',
      'complete -F _noria noria',
    ].join('\n'),
  zsh: (tree) =>
    [
      '#compdef noria',
      '_noria() {',
      '  local before=$words[CURRENT-1] command= each',
      '  local -a found',
      ...findCommand(tree, '$words[2,CURRENT-1]'),
      '  case $before in',
      ...valueFlags(tree).map((flag) => `    ${spellings(flag)}) ${zshValue(flag.value)}; return ;;`),
      '  esac',
      '  case $command in',
      `    '') found=(${described(tree.commands.map(({ name, about }) => [name, about]))}); _describe command found`,
      `        found=(${describedFlags(tree.top)}); _describe -o option found ;;`,
      ...tree.commands.map((command) =>
        [
          `    ${command.name})`,
          ...(command.choices.length === 0 ? [] : [`compadd -- ${command.choices.join(' ')};`]),
          `found=(${describedFlags(command)}); _describe -o option found ;;`,
        ].join(' '),
      ),
      '  esac',
      '}',
      'if [[ $funcstack[1] == _noria ]]; then _noria "$@"; else compdef _noria noria; fi',
    ].join('\n'),
  fish: ({ commands, top }) => {
    const none = `not __fish_seen_subcommand_from ${commands.map(({ name }) => name).join(' ')}`;
    return [
      'complete -c noria -f',
      ...top.flags.map((flag) => fishFlag(none, flag)),
      ...commands.flatMap(({ name, about, flags, choices }) => [
        `complete -c noria -n '${none}' -a ${name} -d ${quote(about)}`,
        ...flags.map((flag) => fishFlag(`__fish_seen_subcommand_from ${name}`, flag)),
        ...(choices.length === 0
          ? []
          : [`complete -c noria -n '__fish_seen_subcommand_from ${name}' -a ${quote(choices.join(' '))}`]),
      ]),
    ].join('\n');
  },
};

function bashValue(value: FlagValue): string {
  if (typeof value === 'object')
    return `mapfile -t COMPREPLY < <(compgen -W ${quote(value.join(' '))} -- "$word")`;
  return value === 'file'
    ? 'compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word")'
    : 'COMPREPLY=()';
}

function zshValue(value: FlagValue): string {
  if (typeof value === 'object') return `compadd -- ${value.join(' ')}`;
  return value === 'file' ? '_files' : "_message 'a value'";
}

function described(pairs: readonly (readonly [word: string, about: string])[]): string {
  return pairs.map(([word, about]) => quote(`${word}:${about.replaceAll(':', '\\:')}`)).join(' ');
}

const describedFlags = ({ flags }: CommandWords) => described(flags.map(({ long, about }) => [long, about]));

function fishFlag(when: string, { long, short, about, value }: Flag): string {
  const name = [...(short === undefined ? [] : [`-s ${short.slice(1)}`]), `-l ${long.slice(2)}`].join(' ');
  const what = { none: '', file: ' -r -F', free: ' -x' };
  const behind = typeof value === 'string' ? what[value] : ` -x -a ${quote(value.join(' '))}`;
  return `complete -c noria -n '${when}' ${name}${behind} -d ${quote(about)}`;
}
