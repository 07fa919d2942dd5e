/** Writing what an option names: whole files, through links; devices and pipes are written to directly. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { makeFolder, replaceFile, writeOutput } from '@ropewalk/formats/internal/node';
import { builtPackage } from '../../../test/support/build.js';
import { ropewalkProcess } from '../../../test/support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'write-file-'));
after(() => rmSync(folder, { recursive: true }));

test('a device stays a device', (t) => {
  const device = join(folder, 'null');
  if (spawnSync('mknod', [device, 'c', '1', '3']).status !== 0) return t.skip('no device can be made here');
  try {
    replaceFile(device, 'text');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error; // mounted without devices
  }
  assert.ok(lstatSync(device).isCharacterDevice());
});

test('a pipe is written to', { skip: process.platform === 'win32' && 'no such pipes' }, async () => {
  const pipe = join(folder, 'pipe');
  spawnSync('mkfifo', [pipe]);
  const reader = spawn('cat', [pipe], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  reader.stdout.on('data', (chunk) => {
    text += chunk;
  });
  replaceFile(pipe, 'text');
  await new Promise((resolve) => reader.on('close', resolve));
  assert.equal(text, 'text');
  assert.ok(lstatSync(pipe).isFIFO());
});

test('through a link, the target is written, whether it exists or not', () => {
  for (const there of [true, false]) {
    const [link, middle, target] = ['link', 'middle', 'target'].map((name) => join(folder, `${name}-${there}`)) as [
      string,
      string,
      string,
    ];
    symlinkSync(`middle-${there}`, link);
    symlinkSync(`target-${there}`, middle);
    if (there) writeFileSync(target, 'old');
    replaceFile(link, 'new');
    assert.ok(lstatSync(link).isSymbolicLink() && lstatSync(middle).isSymbolicLink());
    assert.equal(readFileSync(target, 'utf8'), 'new');
  }
  const loop = join(folder, 'loop');
  symlinkSync('loop', loop);
  assert.throws(() => writeOutput(loop, '', '--out'), /a symbolic link that leads back to itself/);
});

test('/dev/stdout is stdout: the file comes before the messages', {
  skip: !existsSync('/dev/stdout') && 'no /dev/stdout',
}, () => {
  const { status, stdout, stderr } = ropewalkProcess(
    folder,
    'aicore',
    '--shape',
    '1,2,1,128',
    '--kernel',
    'fast',
    '--svg',
    '/dev/stdout',
  );
  assert.deepEqual([status, stderr], [0, '']);
  assert.match(stdout, /^<svg.*<\/svg>\s.*fast/s);
});

test('what a process that was killed left is removed when the file is written again', () => {
  const home = join(folder, 'killed');
  makeFolder(home);
  const file = join(home, 'note');
  const code = `import fs from 'node:fs';
    import { syncBuiltinESMExports } from 'node:module';
    fs.renameSync = () => process.kill(process.pid, 'SIGKILL');
    syncBuiltinESMExports();
    const { replaceFile } = await import(${JSON.stringify(pathToFileURL(join(builtPackage('formats'), 'internal.node.js')).href)});
    replaceFile(${JSON.stringify(file)}, 'half');`;
  const { signal, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', code], { encoding: 'utf8' });
  assert.equal(signal, 'SIGKILL', stderr);
  assert.match(readdirSync(home).join(), /^\.note\..*\.ropewalk\.tmp$/);
  replaceFile(file, 'whole');
  assert.deepEqual(readdirSync(home), ['note']);
});

test('a folder that is missing is named', () => {
  const file = join(folder, 'none', 'o.onnx');
  assert.throws(() => writeOutput(file, '', '--out'), {
    code: 'DEVICE',
    message: `--out: ${file}: there is no folder ${join(folder, 'none')}. Make it first.`,
  });
});

test('folders are made, and making them ends where none can be made', () => {
  assert.equal(makeFolder(join(folder, 'a/b/c')), join(folder, 'a'));
  assert.equal(makeFolder(join(folder, 'a/b/c')), undefined);
  assert.deepEqual(readdirSync(join(folder, 'a/b')), ['c']);
  if (existsSync('/proc/self')) assert.throws(() => makeFolder('/proc/ropewalk/made'), { syscall: 'mkdir' });
});
