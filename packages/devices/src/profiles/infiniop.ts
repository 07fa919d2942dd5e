/** InfiniOp's RoPE kernels for Ascend, of 2025 and of today. @module */
import type { Backend } from 'ropewalk';
import { type DeviceProfile, type DeviceRule, type RopeUse, rotation, rule } from '../profile.js';

/** The rules that both have: InfiniOp's checks on every device, and the need of its kernel for GPT-J. */
const common = (folder: string): Readonly<Record<'tables' | 'whole' | 'layout' | 'repeats', DeviceRule<RopeUse>>> => ({
  tables: rule("sin and cos have x's dtype", `${folder}/rope.h`, ({ tables, dtype }) => tables === dtype),
  whole: rule(
    'dhead is twice the width of the tables: all of it rotates',
    `${folder}/rope.h`,
    ({ rotaryDim, headDim }) => rotaryDim === headDim,
  ),
  layout: rule(
    'the layout is [batch, seqlen, nhead, dhead] or [seqlen, nhead, dhead]',
    `${folder}/rope.h`,
    ({ layout }) => layout === 'bsnh' || layout === 'tnh',
  ),
  repeats: rule(
    'GPT_J: a row of dhead fills repeats of 256 bytes',
    `${folder}/ascend/rope_ascend_kernel.cpp`,
    ({ pairing, headDim, dtype }) => pairing !== 'interleaved' || (headDim * (dtype === 'f16' ? 2 : 4)) % 256 === 0,
    'GatherMask reads and writes whole repeats, beyond the buffers of the row',
  ),
});

const THEN = 'InfiniTensor/InfiniCore@9f0ae734 src/infiniop/ops/rope';
const RULES_2025 = /* @__PURE__ */ common(THEN);

/** The kernel that InfiniOp's documentation describes: GPT-J, batch 0. It computes. */
export const INFINIOP_ASCEND_2025: DeviceProfile = {
  name: 'infiniop-ascend-2025',
  title: "InfiniOp's RoPE on Ascend of 2025, as its documentation describes it",
  sources: [`${THEN}/rope.h`, `${THEN}/ascend/rope_ascend.cc`, `${THEN}/ascend/rope_ascend_kernel.cpp`],
  operators: [
    rotation('infiniopRoPE', 'tables', [
      rule('x is F32 or F16', `${THEN}/ascend/rope_ascend.cc`, ({ dtype }) => dtype === 'f32' || dtype === 'f16'),
      RULES_2025.tables,
      rule(
        'the algorithm is GPT_J (interleaved)',
        `${THEN}/ascend/rope_ascend.cc`,
        ({ pairing }) => pairing === 'interleaved',
      ),
      RULES_2025.whole,
      RULES_2025.layout,
      rule(
        'there is one batch',
        `${THEN}/ascend/rope_ascend_kernel.cpp`,
        ({ batch }) => batch === 1,
        'only batch 0 is written',
      ),
      RULES_2025.repeats,
    ]),
  ],
  open: async (): Promise<Backend> => (await import('@ropewalk/ascend')).openAscendModel({ kernel: 'baseline' }),
};

const FOLDER = 'InfiniTensor/InfiniCore@2cec6ce6 src/infiniop/ops/rope';
const CHECKS = `${FOLDER}/rope.h`;
const ENTRY = `${FOLDER}/ascend/rope_ascend.cc`;
const KERNEL = `${FOLDER}/ascend/rope_ascend_kernel.cpp`;
const TODAY = /* @__PURE__ */ common(FOLDER);

/** GPT-J and GPT-NeoX, one block for each head. */
export const INFINIOP_ASCEND: DeviceProfile = {
  name: 'infiniop-ascend',
  title: "InfiniOp's RoPE on Ascend",
  sources: [CHECKS, ENTRY, KERNEL],
  operators: [
    rotation('infiniopRoPE', 'tables', [
      rule('x is F32, F16 or BF16', ENTRY, ({ dtype }) => dtype !== 'f64'),
      TODAY.tables,
      rule(
        'the algorithm is GPT_J (interleaved) or GPT_NEOX (half)',
        ENTRY,
        ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
      ),
      TODAY.whole,
      TODAY.layout,
      rule(
        'all batches have the same positions',
        KERNEL,
        ({ batchPositions }) => !batchPositions,
        "every batch is rotated by batch 0's positions",
      ),
      TODAY.repeats,
    ]),
  ],
};
