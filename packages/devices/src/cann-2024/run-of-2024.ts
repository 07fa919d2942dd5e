/**
 * What the device printed for the 96 published cases, and the inputs on which its errors hang.
 *
 * Verdicts and NMSE are those of seed document 000, section 4 (the same lines are in ggml-org/llama.cpp#10540). The
 * document prints no positions. llama.cpp's test-backend-ops draws each as `rand() % n_ctx` and never seeds rand(), so
 * they are the first 192 numbers of glibc's generator, two a line. With these, the lines whose error hangs on the
 * position come out as printed.
 *
 * On 8 lines, those with a ramp and freq_factors, the error also hangs on the factor of pair 0, which the run drew from
 * [0.9, 1.1]. It was not printed by the run. Kept is the one found by search: of the factors with four decimals whose
 * NMSE is within 1 % of the printed one (x all ones), the nearest to 1. So their NMSE confirms no more than that such a
 * factor exists. packages/devices/test/cann-2024.test.ts computes positions and factors.
 *
 * @module
 * @see ggml-org/llama.cpp tests/test-backend-ops.cpp, test_rope
 */

import type { PublishedLine } from '../profile.js';

/**
 * `[position, position]` of a line that passed, `[position, position, NMSE]` of one that failed, then the factor of pair
 * 0 where it was searched; in the run's order.
 */
const LINES: readonly (readonly [number, number, number?, number?])[] = [
  [359, 454],
  [105, 115],
  [81, 255],
  [74, 236],
  [297, 205],
  [186, 427],
  [498, 251],
  [483, 326, 0.463321724],
  [124, 194, 0.66861514],
  [84, 504],
  [283, 488],
  [487, 397],
  [374, 346],
  [302, 99],
  [51, 415],
  [201, 410],
  [358, 306],
  [13, 439, 0.368277397],
  [49, 88, 0.696081089],
  [163, 346],
  [293, 349],
  [261, 279],
  [88, 233],
  [94, 212],
  [427, 178],
  [205, 198],
  [155, 180],
  [84, 17, 0.319151592],
  [14, 386, 0.59503227],
  [116, 65],
  [289, 317],
  [476, 135],
  [112, 489],
  [62, 161],
  [65, 225],
  [508, 359],
  [62, 257],
  [126, 151, 0.437291161],
  [490, 220, 0.793302996],
  [363, 406],
  [399, 56],
  [92, 42],
  [236, 176],
  [59, 251],
  [50, 175, 1.27e-7],
  [316, 340, 1.26e-7],
  [492, 280, 1.26e-7],
  [475, 92, 1.14e-7],
  [258, 26],
  [254, 323],
  [251, 250],
  [170, 314],
  [507, 297],
  [465, 486],
  [5, 316],
  [380, 404],
  [373, 472],
  [446, 97],
  [137, 505],
  [348, 187],
  [168, 153, 1.33e-7],
  [15, 149, 1.35e-7],
  [433, 491, 1.24e-7],
  [241, 179, 1.2e-7],
  [5, 495],
  [503, 256],
  [233, 161],
  [58, 229],
  [458, 11],
  [203, 464],
  [328, 71],
  [356, 189],
  [31, 291],
  [286, 168],
  [284, 123],
  [356, 453],
  [276, 371, 1.29e-7],
  [90, 197, 1.3e-7],
  [350, 331, 1.26e-7],
  [377, 355, 1.13e-7],
  [315, 368, 0.034244885],
  [100, 36, 0.020188795],
  [17, 158, 0.024516119, 1.0267],
  [265, 476, 0.082505471, 0.9932],
  [170, 468, 0.053591647],
  [428, 498, 0.065958021],
  [27, 272, 0.03586216, 0.991],
  [175, 59, 0.053250192, 1.0179],
  [51, 461, 0.04487427],
  [227, 336, 0.065446214],
  [72, 71, 0.054048501, 0.9914],
  [277, 348, 0.007645944, 0.9277],
  [443, 367, 0.056864123],
  [34, 281, 0.054061044],
  [186, 411, 0.010074106, 1.0298],
  [125, 501, 0.065617311, 1.0023],
];

/** The run of an Ascend 910B3, in the order of the published cases. */
export const CANN_2024_RUN: readonly PublishedLine[] = /* @__PURE__ */ LINES.map(([p, q, nmse, factor]) => ({
  positions: [p, q],
  ...(nmse === undefined ? {} : { nmse }),
  ...(factor === undefined ? {} : { firstFactor: factor }),
}));
