/**
 * Runs the RoPE kernels on the model.
 *
 * @module
 */
import { readOptions } from '../../core/arguments.js';
import { refuse } from '../../core/errors.js';
import { coresOf } from '../core.js';
import { type LaunchOptions, launchKernel } from '../launch.js';
import type { KernelRun, RopeKernelOptions } from '../trace.js';
import { type RopeArgs, ropeArgs } from './args.js';
import { correctKernel } from './correct.js';
import { fastKernel } from './fast.js';
import { seedKernel } from './seed.js';

/**
 * Runs one of the RoPE kernels on the modelled AI Core: y is written, in the caller's memory.
 *
 * The seed kernel writes what it would write on the device, faults included, as far as it stays in the caller's arrays.
 *
 * @param call - kernel, tensors, tables, machine; see {@link RopeKernelOptions}
 * @returns cycles, bytes, buffers, findings; a kernel that hangs is a finding
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, ALIAS, naming the argument; UNSUPPORTED when the kernel does not do it; nothing is written then
 */
export function runRopeKernel(call: RopeKernelOptions): KernelRun {
  const options = readOptions(call, 'aicore: options');
  const { kernel } = options;
  if (kernel !== 'seed' && kernel !== 'correct' && kernel !== 'fast') {
    refuse('UNSUPPORTED', 'aicore: kernel', 'seed, correct or fast', kernel);
  }
  const machine = readOptions(options.machine ?? {}, 'aicore: machine');
  coresOf(machine);
  const a = ropeArgs(options);
  const rows = a.batch * a.seq * a.heads;
  const common = {
    kernel,
    dtype: a.dtype,
    machine,
    ...(options.record === undefined ? {} : { record: options.record }),
    ...(options.onBlock ? { onBlock: options.onBlock } : {}),
    output: a.y,
    rowLength: a.dim,
    rowStarts: a.rowStarts,
    least: a.least,
  };
  if (kernel === 'seed') return launchKernel({ ...common, ...seedLaunch(a) });
  const blocks = Math.min(coresOf(machine), rows);
  return kernel === 'correct'
    ? launchKernel({ ...common, blocks, autoSync: true, body: (c) => correctKernel(c, a, blocks) })
    : launchKernel({ ...common, blocks, autoSync: false, body: (c) => fastKernel(c, a, blocks) });
}

/** What the seed's Descriptor does on the host: it refuses what its document says, and launches one block a head. */
function seedLaunch(a: RopeArgs): Pick<LaunchOptions, 'blocks' | 'autoSync' | 'body' | 'extra'> {
  if (a.dtype === 'bf16')
    refuse('UNSUPPORTED', 'aicore: dtype', 'f16 or f32 with the seed kernel', a.dtype, 'Use kernel correct or fast.');
  if (a.pairing !== 'interleaved') {
    refuse(
      'UNSUPPORTED',
      'aicore: pairing',
      'interleaved (GPT-J) with the seed kernel',
      a.pairing,
      'Use kernel correct or fast.',
    );
  }
  if (a.rotaryDim !== a.dim) {
    refuse(
      'UNSUPPORTED',
      'aicore: rotaryDim',
      `the whole head_dim=${a.dim} with the seed kernel`,
      a.rotaryDim,
      'Use kernel correct or fast.',
    );
  }
  const ignored = a.positions2d && a.batch > 1;
  return {
    // Nothing of a batch is launched: one block for each head of batch 0.
    blocks: a.batch === 0 || a.seq === 0 ? 0 : a.heads,
    autoSync: true,
    body: (c) => seedKernel(c, a),
    extra: ignored
      ? [
          {
            kind: 'wrong-operand',
            line: 'copyIn: pos_idx = _p_gm(i)',
            message: `positions are indexed by the token alone: the rows of batches 1 to ${a.batch - 1} are never read`,
          },
        ]
      : [],
  };
}
