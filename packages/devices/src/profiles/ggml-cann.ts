/** ggml's CANN backend: the operators that it runs on the NPU (`supports_op`); the CPU runs most others. @module */
import { type DeviceProfile, type DeviceRule, type RopeUse, rotation, rule } from '../profile.js';

const THEN = 'ggml-org/ggml@93dcec98 src/ggml-cann/ggml-cann.cpp';
const NOW = 'ggml-org/ggml@d99724f2 src/ggml-cann/ggml-cann.cpp';
const ROPE_NOW = 'ggml-org/ggml@d99724f2 src/ggml-cann/aclnn_ops.cpp';
const MODES_THEN = 'ggml-org/ggml@93dcec98 include/ggml.h';
const MODES = 'ggml-org/ggml@d99724f2 include/ggml.h';

const SHARED: DeviceRule<RopeUse> = rule(
  'all batches share the positions: one a token',
  ROPE_NOW,
  ({ batchPositions }) => !batchPositions,
);

/** The rules of ggml's interface of 2024. M-RoPE and VISION came on 2024-12-17, with ggml@2db5dd29. */
export const GGML_CALL_2024: readonly DeviceRule<RopeUse>[] = [
  rule(
    'pairs are (2j, 2j+1) or (j, j + n_dims/2): ggml has no VISION mode yet',
    MODES_THEN,
    ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
  ),
  SHARED,
  rule('there is one position axis: ggml has no M-RoPE yet', MODES_THEN, ({ axes }) => axes === 1),
];

/** The backend after the run of cann-2024: it does not take any more what that run got wrong. */
export const GGML_CANN_2024: DeviceProfile = {
  name: 'ggml-cann-2024',
  title: "ggml's CANN backend of December 2024 (llama.cpp#10540): what had failed is left to the CPU",
  sources: [THEN],
  dtype: 'f32',
  operators: [
    rotation('ROPE', 'positions', [
      ...GGML_CALL_2024,
      rule('x is F32', THEN, ({ dtype }) => dtype === 'f32'),
      rule('n_dims is ne0: all dimensions of a head rotate', THEN, ({ rotaryDim, headDim }) => rotaryDim === headDim),
      rule('ext_factor is 0: no ramp', THEN, ({ ramp }) => !ramp),
      rule('attn_factor is 1', THEN, ({ attnFactor }) => attnFactor === 1),
    ]),
  ],
};

const ROPE_RULES: readonly DeviceRule<RopeUse>[] = [
  rule(
    'pairs are (2j, 2j+1), (j, j + n_dims/2), or those of VISION: ggml has no other mode',
    MODES,
    ({ pairing }) => pairing === 'half' || pairing === 'interleaved' || pairing === 'vision',
  ),
  rule(
    'pairs of M-RoPE are (j, j + n_dims/2)',
    ROPE_NOW,
    ({ axes, pairing }) => axes === 1 || pairing !== 'interleaved',
  ),
  SHARED,
  rule(
    'the rotated window starts at dimension 0 (no ggml_rope_set_offset)',
    NOW,
    ({ rotaryOffset }) => rotaryOffset === 0,
  ),
  rule('ne0 is at most 896', NOW, ({ headDim }) => headDim <= 896),
];

/** The backend of August 2026 on Atlas A2 and A3. */
export const GGML_CANN: DeviceProfile = {
  name: 'ggml-cann',
  title: "ggml's CANN backend of August 2026 on Atlas A2 and A3",
  sources: [NOW, ROPE_NOW],
  dtype: 'f32',
  operators: [
    rotation('ROPE', 'positions', ROPE_RULES),
    {
      op: 'attention',
      name: 'FLASH_ATTN_EXT',
      rules: [
        rule('k and v are F16', NOW, ({ dtype }) => dtype === 'f16'),
        rule('there are no sinks', NOW, ({ sinks }) => !sinks),
        rule('k and v have the same head size', NOW, ({ headDim, valueDim }) => headDim === valueDim),
        rule('scores are not capped', NOW, ({ softcap }) => !softcap),
      ],
    },
  ],
};

/** The backend of August 2026 on the 310P. */
export const GGML_CANN_310P: DeviceProfile = {
  name: 'ggml-cann-310p',
  title: "ggml's CANN backend of August 2026 on Ascend 310P",
  sources: [NOW, ROPE_NOW],
  dtype: 'f32',
  operators: [
    rotation('ROPE', 'positions', [
      ...ROPE_RULES,
      rule(
        'n_dims is ne0: all dimensions of a head rotate, and the mode is not VISION, where n_dims is ne0/2',
        NOW,
        ({ rotaryDim, headDim, pairing }) => rotaryDim === headDim && pairing !== 'vision',
      ),
      rule('x is contiguous', NOW, ({ contiguous }) => contiguous),
    ]),
  ],
  lacks: [{ name: 'FLASH_ATTN_EXT', source: NOW }],
};
