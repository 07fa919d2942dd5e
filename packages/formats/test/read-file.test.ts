import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { vectorFolder } from '@ropewalk/oracle/node';
import { openFile, readAt, readFileBytes, readFileRange } from '../src/read-file.node.js';

const folder = mkdtempSync(join(tmpdir(), 'read-file-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const at = (name: string): string => join(folder, name);
const pipes = process.platform === 'win32' ? 'no named pipes on Windows' : false;

writeFileSync(at('five'), Uint8Array.of(1, 2, 3, 4, 5));
symlinkSync(at('five'), at('link'));
symlinkSync(at('loop'), at('loop'));

describe('reading a file that a user names', () => {
  test('whole, in part, piece by piece, and through a symbolic link', async () => {
    assert.deepEqual([...readFileBytes(at('five'), 5)], [1, 2, 3, 4, 5]);
    assert.deepEqual([...readFileBytes(at('link'), () => {})], [1, 2, 3, 4, 5]);
    assert.deepEqual([...readFileRange(at('five'), 1, 3)], [2, 3, 4]);
    const { file, size } = await openFile(at('five'));
    try {
      assert.equal(size, 5);
      assert.deepEqual([...(await readAt(file, 3, 2, 'five'))], [4, 5]);
      await assert.rejects(readAt(file, 3, 3, 'five'), {
        code: 'FORMAT',
        message: 'five: expected 3 bytes from 3, got 2. The file was cut while it was read.',
      });
    } finally {
      await file.close();
    }
  });

  const refused = async (path: string, message: string): Promise<void> => {
    const error = { name: 'RopewalkError', code: 'FORMAT', message: `cmd: --x: ${message}` };
    assert.throws(() => readFileBytes(path, 2 ** 20, 'cmd: --x'), error);
    assert.throws(() => readFileRange(path, 0, 0, 'cmd: --x'), error);
    await assert.rejects(openFile(path, 'cmd: --x'), error);
  };

  test('a pipe is refused, not waited for', { skip: pipes }, async () => {
    assert.equal(spawnSync('mkfifo', [at('pipe')]).status, 0);
    await refused(at('pipe'), 'expected a regular file, got a pipe. Write its content to a file first.');
    // A manifest names it: `ropewalk check --vectors`.
    assert.throws(() => vectorFolder(folder).read('pipe'), {
      code: 'FORMAT',
      message: /read-file-.*\/pipe: .*got a pipe/,
    });
  });

  test('devices, sockets and folders are refused', { skip: pipes }, async () => {
    await refused('/dev/zero', 'expected a regular file, got a device. Write its content to a file first.');
    await refused(folder, 'expected a regular file, got a folder');
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(at('socket'), resolve));
    try {
      await refused(at('socket'), 'expected a regular file, got a socket. Write its content to a file first.');
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  test('errors of the system are explained', async () => {
    await refused(at('none'), 'there is no such file or folder');
    await refused(at('five/x'), 'expected a readable file, got a path through something that is not a folder');
    await refused(at('loop'), 'expected a readable file, got a symbolic link that leads back to itself');
    await refused('a\0b', "expected a readable file, got the system's error ERR_INVALID_ARG_VALUE");
  });

  test('sizes are checked before memory is taken', () => {
    assert.throws(() => readFileBytes(at('five'), 4), {
      code: 'FORMAT',
      message: `${at('five')}: expected at most 4 bytes, got 5`,
    });
    assert.throws(() => readFileRange(at('five'), 3, 2 ** 50), {
      code: 'FORMAT',
      message: `${at('five')}: it has 5 bytes, too few to read ${2 ** 50} bytes from 3`,
    });
  });
});
