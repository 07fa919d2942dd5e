/** Starts the Python peers of `npm run peers:python`: torch and transformers, llama.cpp, and two published models. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './build.js';

const python = (environment: 'v5' | 'v4'): string => join(ROOT, '.scratch/python', environment, 'bin/python');

/** Published models. Gemma's terms allow their use here, but the file is never committed. */
export const SMOLLM2 = join(ROOT, '.scratch/models/SmolLM2-135M-Instruct.Q4_1.gguf');
export const GEMMA3 = join(ROOT, '.scratch/models/gemma-3-270m-q4_k_m.gguf');
/** A file of SGLang's package, which cannot be installed as a whole without a GPU. */
export const SGLANG_DUMPER = join(ROOT, '.scratch/python/sglang_dumper.py');

/** The RoPE of vLLM, SGLang and others, which cannot be installed whole either. */
export const KERNELS = join(ROOT, '.scratch/python/kernels.zip');

/**
 * The reason why tests with these peers do not run here, or false. They are "left out", which is no failure, because
 * PyPI may be out of reach. With PEERS_PYTHON=required they are skipped, which fails in CI.
 */
const without = (path: string): string | false =>
  existsSync(path)
    ? false
    : `${process.env.PEERS_PYTHON === 'required' ? '' : 'left out: '}the Python peers are not installed: npm run peers:python`;
export const noPython = without(python('v5'));
export const noKernels = noPython || without(KERNELS);

const script = (name: string): string => join(ROOT, 'scripts/python', name);
const env = { ...process.env, HF_HUB_OFFLINE: '1', TRANSFORMERS_VERBOSITY: 'error', PYTHONDONTWRITEBYTECODE: '1' };

/** Starts a script of scripts/python that serves. What it prints can be read; what it says of errors is lost. */
export const startPython = (name: string, args: readonly string[]): ChildProcess =>
  spawn(python('v5'), [script(name), ...args], { env, stdio: ['ignore', 'pipe', 'ignore'] });

/** Runs a script of scripts/python. @returns what it printed @throws if it fails, with what it said */
export function runPython(name: string, args: readonly string[], environment: 'v5' | 'v4' = 'v5'): string {
  const { status, stdout, stderr, error } = spawnSync(python(environment), [script(name), ...args], {
    encoding: 'utf8',
    env,
    maxBuffer: 2 ** 28,
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`${name} ended with ${status}:\n${stderr.slice(-3000)}`);
  return stdout;
}
