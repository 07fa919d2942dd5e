/** Runs the RoPE kernels on the model. @module */
import { fail, readName, readOptions } from 'ropewalk/backend';
import { readChip } from '../core.js';
import { type LaunchOptions, launchKernel } from '../launch.js';
import type { KernelRun, RopeKernelOptions } from '../trace.js';
import { type RopeArgs, ropeArgs } from './args.js';
import { correctKernel } from './correct.js';
import { fastKernel } from './fast.js';
import { seedKernel, whyNotSeed } from './seed.js';

/**
 * Runs one of the RoPE kernels on the modelled AI Core: y is written, in the caller's memory.
 *
 * The seed kernel, the baseline, writes what it would write on the device, with its faults, as far as that stays in the
 * caller's arrays.
 *
 * @param call - kernel, tensors, tables, machine; see {@link RopeKernelOptions}
 * @returns cycles, bytes, buffers, findings; a kernel that hangs is a finding
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, ALIAS, naming the argument; UNSUPPORTED when the kernel does not do it;
 *   nothing is written then
 */
export function runRopeKernel(call: RopeKernelOptions): KernelRun {
  const options = readOptions(call, 'aicore: options');
  const kernel = readName(options.kernel, ['seed', 'correct', 'fast'], 'aicore: kernel');
  const machine = readOptions(options.machine ?? {}, 'aicore: machine');
  const { cores } = readChip(machine);
  const a = ropeArgs(options);
  const common = {
    kernel,
    dtype: a.dtype,
    machine,
    record: options.record,
    onBlock: options.onBlock,
    output: a.y,
    rowLength: a.dim,
    rowStarts: a.rowStarts,
    least: a.least,
  };
  if (kernel === 'seed') return launchKernel({ ...common, ...seedLaunch(a) });
  const blocks = Math.min(cores, a.batch * a.seq * a.heads);
  const body = kernel === 'correct' ? correctKernel : fastKernel;
  return launchKernel({ ...common, blocks, autoSync: kernel === 'correct', body: (c) => body(c, a, blocks) });
}

/** What the baseline's Descriptor does on the host: refuses what its document excludes, launches one block a head. */
function seedLaunch(a: RopeArgs): Pick<LaunchOptions, 'blocks' | 'autoSync' | 'body' | 'extra'> {
  const why = whyNotSeed({ ...a, headDim: a.dim });
  if (why) fail('UNSUPPORTED', 'aicore: kernel', `the seed kernel ${why}. Use correct or fast.`);
  return {
    // Only batch 0 is launched: one block for each of its heads.
    blocks: a.batch === 0 || a.seq === 0 ? 0 : a.heads,
    autoSync: true,
    body: (c) => seedKernel(c, a),
    extra:
      a.positionBatch === 0 || a.batch < 2
        ? []
        : [
            {
              kind: 'wrong-operand',
              line: 'copyIn: pos_idx = _p_gm(i)',
              message: `positions are indexed by the token alone: the rows of batches 1 to ${a.batch - 1} are never read`,
            },
          ],
  };
}
