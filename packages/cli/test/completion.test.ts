/** `ropewalk completion`: bash runs its script; those of zsh and fish name every command and flag. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { createProgram } from '../src/program.js';

const scriptOf = async (shell: string): Promise<string> => (await ropewalkIn(ROOT, 'completion', shell)).stdout;
const { commands } = createProgram();

describe('bash', () => {
  /** Returns the words that Tab offers behind these words, of which the last is unfinished. */
  const offered = async (...words: string[]): Promise<string[]> => {
    const code = `${await scriptOf('bash')}
      COMP_WORDS=(ropewalk "$@"); COMP_CWORD=$#; _ropewalk; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { status, stdout, stderr } = spawnSync('bash', ['-c', code, 'bash', ...words], { encoding: 'utf8' });
    assert.deepEqual([status, stderr], [0, '']);
    return stdout.split('\n').filter((line) => line !== '');
  };

  test('commands', async () => {
    assert.deepEqual((await offered('')).sort(), [...commands.map((one) => one.name()), 'help'].sort());
    assert.deepEqual(await offered('comp'), ['compare-logits', 'completion']);
    assert.deepEqual(await offered('help', 'chec'), ['check']);
    assert.deepEqual(await offered('nothing'), []);
  });

  test('options of the command, and none that help does not list', async () => {
    assert.deepEqual(await offered('check', '--ver'), ['--verbose']);
    assert.deepEqual(await offered('check', 'x', '--f'), ['--form', '--filter']);
    assert.deepEqual(await offered('generate', '--n'), []); // --n-predict is llama.cpp's
    assert.ok((await offered('generate', '-')).includes('-n'));
  });

  test('files elsewhere', async () => {
    assert.deepEqual(await offered('inspect', 'mo'), []);
    assert.match(await scriptOf('bash'), /^complete -o default -F _ropewalk ropewalk$/m);
  });
});

for (const [shell, flag] of [
  ['zsh', (name: string) => `'*${name}[`],
  ['fish', (name: string) => (name.startsWith('--') ? `-l ${name.slice(2)} ` : `-s ${name.slice(1)} `)],
] as const)
  test(`${shell}: every command and flag`, async () => {
    const lines = (await scriptOf(shell)).split('\n');
    for (const command of commands) {
      const own = lines.filter((line) =>
        shell === 'zsh'
          ? line.startsWith(`    ${command.name()}) `)
          : line.includes(`'__fish_seen_subcommand_from ${command.name()}'`),
      );
      for (const { long, hidden } of command.options)
        assert.equal(`${own.join(' ')} `.includes(flag(long!)), !hidden, `${command.name()} ${long}`);
    }
  });
