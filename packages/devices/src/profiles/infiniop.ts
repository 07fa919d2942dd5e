/** InfiniOp's RoPE kernels for Ascend. @module */
import type { DeviceProfile } from '../profile.js';

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
    {
      op: 'rope',
      name: 'infiniopRoPE',
      call: 'tables',
      rules: [
        {
          words: 'x is F32, F16 or BF16',
          source: ENTRY,
          holds: ({ dtype }) => dtype !== 'f64',
        },
        { words: "sin and cos have x's dtype", source: CHECKS, holds: ({ tables, dtype }) => tables === dtype },
        {
          words: 'the algorithm is GPT_J (interleaved) or GPT_NEOX (half)',
          source: ENTRY,
          holds: ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
        },
        {
          words: 'dhead is twice the width of the tables: all of it rotates',
          source: CHECKS,
          holds: ({ rotaryDim, headDim }) => rotaryDim === headDim,
        },
        {
          words: 'the layout is [batch, seqlen, nhead, dhead] or [seqlen, nhead, dhead]',
          source: CHECKS,
          holds: ({ layout }) => layout === 'bsnh' || layout === 'tnh',
        },
        {
          words: 'all batches have the same positions',
          source: KERNEL,
          holds: ({ batchPositions }) => !batchPositions,
          otherwise: "every batch is rotated by batch 0's positions",
        },
        {
          words: 'GPT_J: a row of dhead fills repeats of 256 bytes',
          source: KERNEL,
          holds: ({ pairing, headDim, dtype }) =>
            pairing !== 'interleaved' || (headDim * (dtype === 'f16' ? 2 : 4)) % 256 === 0,
          otherwise: 'GatherMask reads and writes whole repeats, beyond the buffers of the row',
        },
      ],
    },
  ],
};
