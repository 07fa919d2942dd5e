/** aclnn, CANN's library of operators, on three generations of Ascend NPUs. @module */
import type { FloatDtype } from 'ropewalk';
import { type DeviceProfile, type DeviceRule, type RopeUse, rotation, rule } from '../profile.js';

const DOCS = (commit: string, operator: string, name: string): string =>
  `hicann/ops-transformer@${commit} posembedding/${operator}/docs/${name}.md`;
const EMBEDDING = DOCS('04193abe', 'rotary_position_embedding', 'aclnnRotaryPositionEmbedding');
const APPLY = DOCS('827a6040', 'apply_rotary_pos_emb', 'aclnnApplyRotaryPosEmbV2_en');
const PARTIAL = DOCS('116f7221', 'inplace_partial_rotary_mul', 'aclnnInplacePartialRotaryMul');

const BYTES: Readonly<Record<FloatDtype, number>> = { f64: 8, f32: 4, f16: 2, bf16: 2 };
/** The vector cores of a 910B3; the rule that counts them is about the chip at hand. */
const CORES = 40;
/** The unified buffer of an A2's core. */
const UB_BYTES = 192 * 1024;

const dtypes = (source: string, ...list: readonly FloatDtype[]): DeviceRule<RopeUse> =>
  rule(`x is ${list.slice(0, -1).join(', ')} or ${list.at(-1)}`, source, ({ dtype }) => list.includes(dtype));
const sameTables = (source: string): DeviceRule<RopeUse> =>
  rule("cos and sin have x's dtype", source, ({ tables, dtype }) => tables === dtype);
const wholeHead = (source: string): DeviceRule<RopeUse> =>
  rule('all of D rotates', source, ({ rotaryDim, headDim }) => rotaryDim === headDim);
const fewHeads: DeviceRule<RopeUse> = rule(
  'B and N are below 1000',
  EMBEDDING,
  ({ batch, heads }) => batch < 1000 && heads < 1000,
);
/** Tells whether half a head is a whole number of blocks. */
const fillsBlocks = ({ headDim, dtype }: RopeUse): boolean => (headDim / 2) % (32 / BYTES[dtype]) === 0;
const fitsRows = ({ batch, heads, seq }: RopeUse): boolean => batch * heads <= 8 * seq;

function applyRules(list: readonly FloatDtype[]): DeviceRule<RopeUse>[] {
  return [
    dtypes(APPLY, ...list),
    sameTables(APPLY),
    rule('rotaryMode is half', APPLY, ({ pairing }) => pairing === 'half'),
    rule('D is 64 or 128', APPLY, ({ headDim }) => headDim === 64 || headDim === 128),
    wholeHead(APPLY),
    rule('the layout is BSND or TND', APPLY, ({ layout }) => layout === 'bsnh' || layout === 'tnh'),
  ];
}

const PARTIAL_RULES: readonly DeviceRule<RopeUse>[] = [
  dtypes(PARTIAL, 'f32', 'f16', 'bf16'),
  rule("cos and sin have x's dtype, or are f32", PARTIAL, ({ tables, dtype }) => tables === dtype || tables === 'f32'),
  rule('rotary_mode is interleave', PARTIAL, ({ pairing }) => pairing === 'interleaved'),
  rule('the layout is BSND', PARTIAL, ({ layout }) => layout === 'bsnh'),
  rule('D is at most 1024', PARTIAL, ({ headDim }) => headDim <= 1024),
  rule('x is contiguous', PARTIAL, ({ contiguous }) => contiguous),
];

const partialTables = (words: string, holds: DeviceRule<RopeUse>['holds']): DeviceRule<RopeUse> =>
  rule(`cos and sin are ${words}`, PARTIAL, holds);
const PARTIAL_TABLES_A2 = partialTables(
  "BS1D or B11D, B as x's",
  ({ tablesOf, batch, heads }) =>
    tablesOf === 'batch' || (tablesOf === 'token' && batch === 1) || (tablesOf === 'head' && heads === 1),
);
const PARTIAL_TABLES_950 = partialTables(
  'BSND, B1ND, B11D or 111D',
  ({ tablesOf, batch, seq, heads }) =>
    tablesOf === 'head' || seq === 1 || (heads === 1 && (tablesOf === 'batch' || batch === 1)),
);

/** Atlas A2 and A3: Ascend 910B and 910C. */
export const ACLNN_A2: DeviceProfile = {
  name: 'aclnn-a2',
  title: 'aclnn on Atlas A2 and A3 (Ascend 910B, 910C)',
  sources: [EMBEDDING, APPLY, PARTIAL],
  operators: [
    rotation(
      'aclnnApplyRotaryPosEmbV2',
      'tables',
      [
        ...applyRules(['f32', 'f16', 'bf16']),
        rule(
          'the heads of q and k of one token, with temporaries, fit the unified buffer of 192 KiB',
          APPLY,
          ({ heads, kHeads, headDim, dtype }) => {
            const cast = dtype === 'bf16' ? 4 : BYTES[dtype];
            const extra = dtype === 'bf16' ? headDim * 4 * 2 : 0;
            return (heads + kHeads) * headDim * cast * 5 + headDim * BYTES[dtype] * 4 + extra <= UB_BYTES;
          },
        ),
      ],
      { together: true },
    ),
    rotation('aclnnRotaryPositionEmbedding', 'tables', [
      dtypes(EMBEDDING, 'f32', 'f16', 'bf16'),
      sameTables(EMBEDDING),
      rule(
        'mode is 0 (half) or 1 (interleave)',
        EMBEDDING,
        ({ pairing }) => pairing === 'half' || pairing === 'interleaved',
      ),
      wholeHead(EMBEDDING),
      rule('D is even and below 896', EMBEDDING, ({ headDim }) => headDim < 896 && headDim % 2 === 0),
      fewHeads,
      rule(
        'half in BNSD: B·N is at most 8·S where D/2 fills blocks of 32 bytes',
        EMBEDDING,
        (use) => use.pairing !== 'half' || use.layout !== 'bnsh' || !fillsBlocks(use) || fitsRows(use),
      ),
      rule(
        `half in BNSD where D/2 fills no blocks of 32 bytes: D is at least 80, or 2·B·N at most S / cores (${CORES} on a 910B3)`,
        EMBEDDING,
        (use) =>
          use.pairing !== 'half' ||
          use.layout !== 'bnsh' ||
          fillsBlocks(use) ||
          use.headDim >= 80 ||
          2 * use.batch * use.heads <= Math.ceil(use.seq / CORES),
      ),
      rule(
        'interleave: B·N is below 1000 (N alone in TND)',
        EMBEDDING,
        ({ pairing, layout, batch, heads }) =>
          pairing !== 'interleaved' || (layout === 'tnh' ? heads : batch * heads) < 1000,
      ),
      rule(
        'interleave: all batches share the tables',
        EMBEDDING,
        ({ pairing, batchPositions }) => pairing !== 'interleaved' || !batchPositions,
      ),
    ]),
    rotation('aclnnInplacePartialRotaryMul', 'tables', [...PARTIAL_RULES, PARTIAL_TABLES_A2]),
  ],
};

/** Atlas inference products. */
export const ACLNN_310P: DeviceProfile = {
  name: 'aclnn-310p',
  title: 'aclnn on Atlas inference products (Ascend 310P)',
  sources: [EMBEDDING, APPLY],
  operators: [
    // The buffer that q and k must fit is not checked: the size of the 310P's is not in the document.
    rotation('aclnnApplyRotaryPosEmbV2', 'tables', applyRules(['f32', 'f16']), { together: true }),
    rotation('aclnnRotaryPositionEmbedding', 'tables', [
      dtypes(EMBEDDING, 'f32', 'f16'),
      sameTables(EMBEDDING),
      rule('mode is 0 (half)', EMBEDDING, ({ pairing }) => pairing === 'half'),
      wholeHead(EMBEDDING),
      rule('D is at most 128 and a multiple of 32', EMBEDDING, ({ headDim }) => headDim <= 128 && headDim % 32 === 0),
      fewHeads,
      rule('in BNSD B·N is at most 8·S', EMBEDDING, (use) => use.layout !== 'bnsh' || fitsRows(use)),
      // The same bound for BSND, (N − 1)·D, follows from N and D.
      rule(
        'in SBND (B·N − 1)·D is below 65535 blocks of 32 bytes',
        EMBEDDING,
        ({ layout, batch, heads, headDim, dtype }) =>
          layout !== 'sbnh' || ((batch * heads - 1) * headDim * BYTES[dtype]) / 32 < 65535,
      ),
    ]),
  ],
  lacks: [{ name: 'aclnnInplacePartialRotaryMul', source: PARTIAL }],
};

/** Ascend 950PR and 950DT. */
export const ACLNN_950: DeviceProfile = {
  name: 'aclnn-950',
  title: 'aclnn on Ascend 950PR and 950DT',
  sources: [EMBEDDING, PARTIAL],
  operators: [
    rotation('aclnnRotaryPositionEmbedding', 'tables', [
      dtypes(EMBEDDING, 'f32', 'f16', 'bf16'),
      sameTables(EMBEDDING),
      wholeHead(EMBEDDING),
      rule(
        'D is at most 1024 and even, in mode 2 (quarter) a multiple of 4',
        EMBEDDING,
        ({ headDim, pairing }) => headDim <= 1024 && headDim % (pairing === 'quarter' ? 4 : 2) === 0,
      ),
    ]),
    rotation('aclnnInplacePartialRotaryMul', 'tables', [...PARTIAL_RULES, PARTIAL_TABLES_950]),
  ],
};
