/** InfiniOp's RoPE kernels for Ascend. @module */
import { type DeviceProfile, rotation, rule } from '../profile.js';

const FOLDER = 'InfiniTensor/InfiniCore@2cec6ce6 src/infiniop/ops/rope';
const CHECKS = `${FOLDER}/rope.h`;
const ENTRY = `${FOLDER}/ascend/rope_ascend.cc`;
const KERNEL = `${FOLDER}/ascend/rope_ascend_kernel.cpp`;

/** GPT-J and GPT-NeoX, one block for each head. */
export const INFINIOP_ASCEND: DeviceProfile = {
  name: 'infiniop-ascend',
  title: "InfiniOp's RoPE on Ascend",
  sources: [CHECKS, ENTRY, KERNEL],
  operators: [
    rotation('infiniopRoPE', 'tables', [
      rule('x is F32, F16 or BF16', ENTRY, ({ dtype }) => dtype !== 'f64'),
      rule("sin and cos have x's dtype", CHECKS, ({ tables, dtype }) => tables === dtype),
      rule(
        'the algorithm is GPT_J (interleaved) or GPT_NEOX (half)',
        ENTRY,
        ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
      ),
      rule(
        'dhead is twice the width of the tables: all of it rotates',
        CHECKS,
        ({ rotaryDim, headDim }) => rotaryDim === headDim,
      ),
      rule(
        'the layout is [batch, seqlen, nhead, dhead] or [seqlen, nhead, dhead]',
        CHECKS,
        ({ layout }) => layout === 'bsnh' || layout === 'tnh',
      ),
      rule(
        'all batches have the same positions',
        KERNEL,
        ({ batchPositions }) => !batchPositions,
        "every batch is rotated by batch 0's positions",
      ),
      rule(
        'GPT_J: a row of dhead fills repeats of 256 bytes',
        KERNEL,
        ({ pairing, headDim, dtype }) => pairing !== 'interleaved' || (headDim * (dtype === 'f16' ? 2 : 4)) % 256 === 0,
        'GatherMask reads and writes whole repeats, beyond the buffers of the row',
      ),
    ]),
  ],
};
