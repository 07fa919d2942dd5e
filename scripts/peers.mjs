/**
 * Installs the peers that tests and benchmarks compare with, the tools that test the built packages, and TypeDoc. It
 * also makes ONNX Runtime visible to the library. That is an optional peer dependency of 290 MB, so `npm ci` does not
 * install it.
 *
 * Usage: node scripts/peers.mjs
 */
import { spawnSync } from 'node:child_process';
import { rmSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const install = (folder, ...options) => {
  const command = ['ci', '--prefix', join(root, folder), '--no-audit', '--no-fund', ...options];
  const { status } = spawnSync('npm', command, { stdio: 'inherit', shell: process.platform === 'win32' });
  if (status !== 0) process.exit(status ?? 1);
};
install('bench');
install('test/consumers');
install('scripts/docs', '--ignore-scripts');
// The CUDA and Vulkan builds of llama.cpp are optional packages of 600 MB, which are not needed.
if (process.platform === 'linux' && process.arch === 'x64')
  install('bench/llama', '--omit=optional', '--ignore-scripts');
const link = join(root, 'node_modules', 'onnxruntime-node');
rmSync(link, { recursive: true, force: true });
symlinkSync(join('..', 'bench', 'node_modules', 'onnxruntime-node'), link, 'junction');
