/** ggml's CANN backend of November 2024, whose run of 96 ROPE cases is published. @module */
import { type DeviceProfile, rotation, rule } from '../profile.js';
import { GGML_CALL_2024 } from '../profiles/ggml-cann.js';
import { cann2024TableErrors, describeSteps, explainCann2024, openCann2024, runSteps } from './backend.js';
import { CANN_2024_RUN } from './run-of-2024.js';

const RUN = 'ggml-org/llama.cpp#10540: a run of 96 ROPE cases on a 910B3';

/** The backend with its twelve literal steps a call. */
export const CANN_2024: DeviceProfile = {
  name: 'cann-2024',
  title: "ggml's CANN backend of November 2024 on an Ascend 910B: twelve steps a call",
  sources: [RUN],
  dtype: 'f32',
  operators: [
    rotation(
      'ROPE',
      'positions',
      [
        ...GGML_CALL_2024,
        rule(
          'all dimensions of a head rotate',
          RUN,
          ({ rotaryDim, headDim }) => rotaryDim === headDim,
          'the whole row rotates; n_dims only sets the exponents',
        ),
        rule('the frequencies have no ramp (ext_factor is 0)', RUN, ({ ramp }) => !ramp, 'the ramp is ignored'),
        rule(
          'x is f32, or attn_factor is 1',
          RUN,
          ({ dtype, attnFactor }) => dtype === 'f32' || attnFactor === 1,
          'the tables are rounded to f16 twice: before attn_factor and after it',
        ),
      ],
      { halfTables: true },
    ),
  ],
  open: () => openCann2024(),
  explain: explainCann2024,
  tableErrors: cann2024TableErrors,
  steps: { describe: describeSteps, run: runSteps },
  published: CANN_2024_RUN,
};
