/** What ggml's CANN backend gives to the NPU (`supports_op`); ggml runs the rest elsewhere, mostly on the CPU. @module */
import type { DeviceProfile, DeviceRule, RopeUse } from '../profile.js';

const THEN = 'ggml-org/ggml@93dcec98 src/ggml-cann/ggml-cann.cpp';
const NOW = 'ggml-org/ggml@d99724f2 src/ggml-cann/ggml-cann.cpp';
const ROPE_NOW = 'ggml-org/ggml@d99724f2 src/ggml-cann/aclnn_ops.cpp';
const MODES_THEN = 'ggml-org/ggml@93dcec98 include/ggml.h';
const MODES = 'ggml-org/ggml@d99724f2 include/ggml.h';

const SHARED: DeviceRule<RopeUse> = {
  words: 'all batches share the positions: one a token',
  source: ROPE_NOW,
  holds: ({ batchPositions }) => !batchPositions,
};

/** By ggml's interface of 2024. M-RoPE and VISION came on 2024-12-17, with ggml@2db5dd29. */
export const GGML_CALL_2024: readonly DeviceRule<RopeUse>[] = [
  {
    words: 'pairs are (2j, 2j+1) or (j, j + n_dims/2): ggml has no VISION mode yet',
    source: MODES_THEN,
    holds: ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
  },
  SHARED,
  {
    words: 'there is one position axis: ggml has no M-RoPE yet',
    source: MODES_THEN,
    holds: ({ axes }) => axes === 1,
  },
];

/** After the run of seed document 000: what it got wrong is not taken any more. */
export const GGML_CANN_2024: DeviceProfile = {
  name: 'ggml-cann-2024',
  title: "ggml's CANN backend of December 2024 (llama.cpp#10540): what had failed is left to the CPU",
  sources: [THEN],
  dtype: 'f32',
  operators: [
    {
      op: 'rope',
      name: 'ROPE',
      call: 'positions',
      rules: [
        ...GGML_CALL_2024,
        { words: 'x is F32', source: THEN, holds: ({ dtype }) => dtype === 'f32' },
        {
          words: 'n_dims is ne0: all dimensions of a head rotate',
          source: THEN,
          holds: ({ rotaryDim, headDim }) => rotaryDim === headDim,
        },
        { words: 'ext_factor is 0: no ramp', source: THEN, holds: ({ ramp }) => !ramp },
        { words: 'attn_factor is 1', source: THEN, holds: ({ attentionFactor }) => attentionFactor === 1 },
      ],
    },
  ],
};

const ROPE_RULES: readonly DeviceRule<RopeUse>[] = [
  {
    words: 'pairs are (2j, 2j+1), (j, j + n_dims/2), or those of VISION: ggml has no other mode',
    source: MODES,
    holds: ({ pairing }) => pairing === 'half' || pairing === 'interleaved' || pairing === 'vision',
  },
  {
    words: 'pairs of M-RoPE are (j, j + n_dims/2)',
    source: ROPE_NOW,
    holds: ({ axes, pairing }) => axes === 1 || pairing !== 'interleaved',
  },
  SHARED,
  {
    words: 'the rotated window starts at dimension 0 (no ggml_rope_set_offset)',
    source: NOW,
    holds: ({ rotaryOffset }) => rotaryOffset === 0,
  },
  { words: 'ne0 is at most 896', source: NOW, holds: ({ headDim }) => headDim <= 896 },
];

/** Today's, on Atlas A2 and A3. */
export const GGML_CANN: DeviceProfile = {
  name: 'ggml-cann',
  title: "ggml's CANN backend of August 2026 on Atlas A2 and A3",
  sources: [NOW, ROPE_NOW],
  dtype: 'f32',
  operators: [
    { op: 'rope', name: 'ROPE', call: 'positions', rules: ROPE_RULES },
    {
      op: 'attention',
      name: 'FLASH_ATTN_EXT',
      rules: [
        { words: 'k and v are F16', source: NOW, holds: ({ dtype }) => dtype === 'f16' },
        { words: 'there are no sinks', source: NOW, holds: ({ sinks }) => !sinks },
        {
          words: 'k and v have the same head size',
          source: NOW,
          holds: ({ headDim, valueDim }) => headDim === valueDim,
        },
        { words: 'scores are not capped', source: NOW, holds: ({ softcap }) => !softcap },
      ],
    },
  ],
};

/** Today's, on the 310P. */
export const GGML_CANN_310P: DeviceProfile = {
  name: 'ggml-cann-310p',
  title: "ggml's CANN backend of August 2026 on Ascend 310P",
  sources: [NOW, ROPE_NOW],
  dtype: 'f32',
  operators: [
    {
      op: 'rope',
      name: 'ROPE',
      call: 'positions',
      rules: [
        ...ROPE_RULES,
        {
          words: 'n_dims is ne0: all dimensions of a head rotate, and the mode is not VISION, where n_dims is ne0/2',
          source: NOW,
          holds: ({ rotaryDim, headDim, pairing }) => rotaryDim === headDim && pairing !== 'vision',
        },
        { words: 'x is contiguous', source: NOW, holds: ({ contiguous }) => contiguous },
      ],
    },
  ],
  lacks: [{ name: 'FLASH_ATTN_EXT', source: NOW }],
};
