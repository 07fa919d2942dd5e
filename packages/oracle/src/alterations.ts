/**
 * Computes by ggml's formula a ROPE case as a backend with one common mistake would, and its NMSE. A log has no outputs,
 * so that its NMSE are all there is to tell mistakes apart.
 *
 * @module
 */
import { type GgmlRopeParams, ropeByFormula } from './ggml-formula.js';
import { nmse } from './judge.js';
import { drawRopeCase, type RopeCaseParams } from './rope-case.js';

/** A call of the formula. */
interface FormulaCall {
  readonly formula: GgmlRopeParams;
  readonly x: Float64Array;
  readonly pos: readonly number[];
  readonly factors: Float32Array | undefined;
}

/** A mistake, and its remedy. */
interface Alteration {
  readonly name: string;
  readonly change: string;
  /** Alters a call; undefined where the mistake changes nothing. */
  readonly alter: (call: FormulaCall, dense: Float64Array) => Partial<FormulaCall> | undefined;
}

const withFormula = (call: FormulaCall, changes: Partial<GgmlRopeParams>): Partial<FormulaCall> => ({
  formula: { ...call.formula, ...changes },
});

const ALTERATIONS: readonly Alteration[] = [
  {
    name: 'ramp ignored',
    change: 'Mix theta·freq_scale and theta by the ramp, and multiply attn_factor by 1 + 0.1·ln(1 / freq_scale).',
    alter: (c) => (c.formula.ext_factor !== 0 ? withFormula(c, { ext_factor: 0 }) : undefined),
  },
  {
    name: "the ramp's magnitude is left out",
    change: 'Where ext_factor is not 0, multiply attn_factor by 1 + 0.1·ln(1 / freq_scale).',
    alter(c) {
      const { ext_factor, freq_scale, attn_factor } = c.formula;
      if (ext_factor === 0 || freq_scale === 1) return undefined;
      return withFormula(c, { attn_factor: attn_factor / (1 + 0.1 * Math.log(1 / freq_scale)) });
    },
  },
  {
    name: 'freq_scale is ignored',
    change: 'Multiply theta by freq_scale.',
    alter: (c) => (c.formula.freq_scale !== 1 ? withFormula(c, { freq_scale: 1 }) : undefined),
  },
  {
    name: 'attn_factor is ignored',
    change: 'Multiply cos and sin by attn_factor.',
    alter: (c) => (c.formula.attn_factor !== 1 ? withFormula(c, { attn_factor: 1 }) : undefined),
  },
  {
    name: 'attn_factor is applied twice',
    change: 'Multiply cos and sin by attn_factor once.',
    alter: (c) =>
      c.formula.attn_factor !== 1 ? withFormula(c, { attn_factor: c.formula.attn_factor ** 2 }) : undefined,
  },
  {
    name: 'freq_factors are ignored',
    change: 'Divide theta of pair j by freq_factors[j].',
    alter: (c) => (c.factors ? { factors: undefined } : undefined),
  },
  {
    name: 'freq_factors multiply',
    change: 'Divide theta of pair j by freq_factors[j]; do not multiply.',
    alter: (c) => (c.factors ? { factors: c.factors.map((factor) => 1 / factor) } : undefined),
  },
  {
    name: "the other mode's pairs",
    change: 'Mode 0 turns (2j, 2j+1), mode 2 turns (j, j + n_dims/2).',
    alter: (c) => (c.formula.mode <= 2 ? withFormula(c, { mode: 2 - c.formula.mode }) : undefined),
  },
  {
    name: 'n_dims is taken for ne0',
    change: 'Rotate n_dims dimensions, divide exponents by n_dims, and copy the other dimensions.',
    alter: (c) =>
      c.formula.mode <= 2 && c.formula.n_dims < c.formula.ne[0] && !c.factors
        ? withFormula(c, { n_dims: c.formula.ne[0], n_offs: 0 })
        : undefined,
  },
  {
    name: 'n_offs is ignored',
    change: 'The rotated dimensions begin at n_offs.',
    alter: (c) => (c.formula.n_offs !== 0 ? withFormula(c, { n_offs: 0 }) : undefined),
  },
  {
    name: "sin has the other direction's sign",
    change: 'ROPE is x0·cos − x1·sin, x0·sin + x1·cos; ROPE_BACK has −sin.',
    alter: (c) => withFormula(c, { forward: !c.formula.forward }),
  },
  {
    name: 'positions are ignored',
    change: 'Read src1: theta of token i2 begins with pos[i2].',
    alter: (c) => ({ pos: c.pos.map(() => 0) }),
  },
  {
    name: "every token has the first token's position",
    change: 'Read pos[i2] for token i2.',
    alter: (c) => (c.formula.ne[2] > 1 && c.formula.mode <= 2 ? { pos: c.pos.map(() => c.pos[0]!) } : undefined),
  },
  {
    name: 'all axes have the first axis’ positions',
    change: 'pos has ne2 positions for each of four axes; sections say which pair has which.',
    alter: (c) => (c.formula.mode > 2 ? { pos: c.pos.map((_, n) => c.pos[n % c.formula.ne[2]]!) } : undefined),
  },
  {
    name: 'a view is read as dense',
    change: 'Use nb01, nb02 and nb03 of src0, and its offset.',
    alter: (c, dense) => (c.x.every((value, n) => value === dense[n]) ? undefined : { x: dense }),
  },
];

/** A mistake and the NMSE that it would give. */
export interface AlteredNmse {
  readonly name: string;
  /** The remedy, a sentence for the backend's author. */
  readonly change: string;
  readonly nmse: number;
}

/** Computes the NMSE of each mistake that changes the result of a case. It draws the inputs of the label. */
export function alteredNmse(params: RopeCaseParams): AlteredNmse[] {
  const { x: tensor, pos, factors, formula } = drawRopeCase(params);
  const x = tensor.readNumbers() as Float64Array;
  const dense = Float64Array.from(x, (_, n) => Number(tensor.storage.host![n]));
  const call: FormulaCall = { formula, x, pos, factors };
  const run = (c: FormulaCall) => ropeByFormula(c.formula, c.x, c.pos, c.factors);
  const want = run(call);
  return ALTERATIONS.flatMap(({ name, change, alter }) => {
    const altered = alter(call, dense);
    if (!altered) return [];
    return [{ name, change, nmse: nmse(run({ ...call, ...altered }), want) }];
  });
}
