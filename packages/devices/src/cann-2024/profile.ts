/** ggml's CANN backend of November 2024, whose run of 96 lines seed document 000 has. @module */
import type { DeviceProfile } from '../profile.js';
import { GGML_CALL_2024 } from '../profiles/ggml-cann.js';
import { explainCann2024, openCann2024 } from './backend.js';
import { CANN_2024_RUN } from './run-of-2024.js';

const RUN = 'seed document 000, section 4';

/** The literal twelve steps of seed document 000. */
export const CANN_2024: DeviceProfile = {
  name: 'cann-2024',
  title: "ggml's CANN backend of November 2024 on an Ascend 910B: twelve steps a call",
  sources: [RUN, 'ggml-org/llama.cpp#10540 (the same lines, on a 910B3)'],
  dtype: 'f32',
  operators: [
    {
      op: 'rope',
      name: 'ROPE',
      call: 'positions',
      halfTables: true,
      rules: [
        ...GGML_CALL_2024,
        {
          words: 'all dimensions of a head rotate',
          source: RUN,
          holds: ({ rotaryDim, headDim }) => rotaryDim === headDim,
          otherwise: 'the whole row rotates; n_dims only sets the exponents',
        },
        {
          words: 'the frequencies have no ramp (ext_factor is 0)',
          source: RUN,
          holds: ({ ramp }) => !ramp,
          otherwise: 'the ramp is ignored',
        },
        {
          words: 'x is f32, or attn_factor is 1',
          source: RUN,
          holds: ({ dtype, attentionFactor }) => dtype === 'f32' || attentionFactor === 1,
          otherwise: 'the tables are rounded to f16 twice: before attn_factor and after it',
        },
      ],
    },
  ],
  open: async () => openCann2024(),
  explain: explainCann2024,
  published: CANN_2024_RUN,
};
