/** `ropewalk completion`: writes scripts with which shells complete commands and options. @module */
import type { Command, Option } from 'commander';
import { readName } from 'ropewalk/internal';
import { EXIT } from './output.js';

/** The writers of the scripts. The first line of a script says into which file it goes. */
const SHELLS: Readonly<Record<string, (commands: readonly Command[]) => string[]>> = { bash, zsh, fish };

export async function completion(shell: string, { commands }: Command): Promise<number> {
  const lines = SHELLS[readName(shell, Object.keys(SHELLS), 'completion: shell')]!(commands);
  process.stdout.write(`${lines.join('\n')}\n`);
  return EXIT.ok;
}

const shown = ({ options }: Command): readonly Option[] => options.filter(({ hidden }) => !hidden);
const flagsOf = ({ short, long }: Option): string[] => [short, long].filter((flag) => flag !== undefined);
const takesValue = ({ required, optional }: Option): boolean => required || optional;

function bash(commands: readonly Command[]): string[] {
  const names = commands.map((command) => command.name()).join(' ');
  const cases = commands.map(
    (one) => `    ${one.name()}) options='${[...shown(one).flatMap(flagsOf), '--help'].join(' ')}' ;;`,
  );
  return `# In ~/.bashrc: eval "$(ropewalk completion bash)"
_ropewalk() {
  local command=\${COMP_WORDS[1]} options='' word=\${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=() # where it stays empty, -o default completes files
  case $command in
${cases.join('\n')}
  esac
  if [[ $COMP_CWORD -eq 1 || $command == help ]]; then
    COMPREPLY=($(compgen -W '${names} help' -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  fi
}
complete -o default -F _ropewalk ropewalk`.split('\n');
}

function zsh(commands: readonly Command[]): string[] {
  const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
  const plain = (text: string): string => text.replace(/[[\]:\\]/g, '\\$&');
  const spec = (option: Option): string[] =>
    flagsOf(option).map((flag) =>
      quoted(`*${flag}[${plain(option.description)}]${takesValue(option) ? ':value:_files' : ''}`),
    );
  return [
    '# In ~/.zshrc, below compinit: eval "$(ropewalk completion zsh)"',
    '_ropewalk() {',
    '  local -a commands=(',
    ...commands.map((one) => `    ${quoted(`${one.name()}:${one.description()}`)}`),
    '  )',
    '  (( CURRENT == 2 )) && { _describe command commands; return }',
    '  local command=$words[2]',
    '  shift words; (( CURRENT-- ))',
    '  case $command in',
    '    help) _describe command commands ;;',
    ...commands.map(
      (one) => `    ${one.name()}) _arguments ${[...shown(one).flatMap(spec), "'*:file:_files'"].join(' ')} ;;`,
    ),
    '  esac',
    '}',
    'compdef _ropewalk ropewalk',
  ];
}

function fish(commands: readonly Command[]): string[] {
  const quoted = (text: string): string => `'${text.replace(/[\\']/g, '\\$&')}'`;
  const flag = (text: string): string => (text.startsWith('--') ? `-l ${text.slice(2)}` : `-s ${text.slice(1)}`);
  const line = (when: string, what: string, description: string): string =>
    `complete -c ropewalk -n ${quoted(when)} ${what} -d ${quoted(description)}`;
  return [
    '# In ~/.config/fish/config.fish: ropewalk completion fish | source',
    ...commands.map((one) => line('__fish_use_subcommand', `-f -a ${one.name()}`, one.description())),
    ...commands.flatMap((one) =>
      shown(one).map((option) =>
        line(
          `__fish_seen_subcommand_from ${one.name()}`,
          [...flagsOf(option).map(flag), ...(takesValue(option) ? ['-r'] : [])].join(' '),
          option.description,
        ),
      ),
    ),
  ];
}
