/**
 * Installs the peers that tests and benchmarks compare with, the tools that the built packages are tried with, and
 * TypeDoc; and lets the library find ONNX Runtime, which is an optional peer of its own: it weighs 290 MB, so `npm ci`
 * does not bring it.
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
// llama.cpp's own CUDA and Vulkan builds are optional packages of 600 MB.
if (process.platform === 'linux' && process.arch === 'x64')
  install('bench/llama', '--omit=optional', '--ignore-scripts');
const link = join(root, 'node_modules', 'onnxruntime-node');
rmSync(link, { recursive: true, force: true });
symlinkSync(join('..', 'bench', 'node_modules', 'onnxruntime-node'), link, 'junction');
