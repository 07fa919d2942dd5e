/** ggml's vectors: raw bytes and a manifest. Each case runs with float64 tables and ggml's f32 recipe. @module */
import { ggml } from '@ropewalk/dialects';
import {
  type ArrayOf,
  bindRope,
  type Dtype,
  type HostArray,
  type Runner,
  sizeBytes,
  type TableRecipe,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { refuse, walk } from 'ropewalk/backend';
import { countElements, type Fields } from 'ropewalk/internal';
import type { VectorFolder } from '../folder.js';
import { boundedShape, bytesToArray, bytesToTensor, viewOf } from '../host.js';
import { allOf, judgeBits, judgeNmse } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, declined } from '../runner.js';
import { RECIPE_NMSE_LIMIT, ropeNmseLimit } from '../tolerance.js';

export function ggmlVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  return manifest.objects('cases').flatMap((fields) => {
    const recipes: TableRecipe[] = isForScoring(fields) ? ['float64', 'ggml-f32'] : ['float64'];
    return recipes.map((recipe) => ({
      suite: 'ggml',
      label: labelOf(fields, recipe),
      run: (runner: Runner) => runCase(folder, fields, recipe, runner),
    }));
  });
}

/** False where ggml's result is arbitrary, which the manifest says in a field about scoring, or in words. */
function isForScoring(fields: Fields): boolean {
  for (const key of fields.keys())
    if (/scor/i.test(key) && fields.raw(key) === /not|un|skip|exclud/i.test(key)) return false;
  const words = ['note', 'notes', 'scoring', 'check'].map((key) => fields.raw(key));
  return !/not (for )?scor/i.test(JSON.stringify(words));
}

function labelOf(f: Fields, recipe: TableRecipe): string {
  return formatLabel('ROPE', {
    vector: `ggml/${f.text('name')}`,
    type: f.text('type'),
    ne_a: f.integers('ne'),
    n_dims: f.integer('n_dims'),
    mode: f.integer('mode'),
    fs: f.number('freq_scale'),
    ef: f.number('ext_factor'),
    af: f.number('attn_factor'),
    ff: f.flag('has_freq_factors') ? 1 : 0,
    view: f.object('view').text('kind'),
    inplace: f.flag('inplace') ? 1 : 0,
    fwd: f.text('direction') === 'backward' ? 0 : 1,
    recipe,
  });
}

async function runCase(folder: VectorFolder, f: Fields, recipe: TableRecipe, runner: Runner): Promise<CaseVerdict> {
  const type = f.oneOf('type', ['f32', 'f16']);
  const unit = sizeBytes(type);
  const ne = f.integers('ne', 0, 2 ** 31);
  if (ne.length !== 4) refuse('FORMAT', `${f.where}.ne`, 'four integers', ne);
  const files = f.object('files');
  const array = <D extends Dtype>(dtype: D, file: string, what: string): ArrayOf[D] =>
    bytesToArray(folder.read(file), dtype, `${f.where}: ${what}`);
  const shape = boundedShape([...ne].reverse(), f.path('ne'));

  const view = f.object('view');
  const nb = view.integers('nb');
  if (nb.length !== 4 || nb.some((bytes) => bytes % unit !== 0))
    refuse('FORMAT', `${f.where}.view.nb`, `four multiples of ${unit}`, nb);
  const base = bytesToTensor(folder.read(files.text('x')), type, view.integers('base_ne').reverse(), `${f.where}: x`);
  const strides = nb.map((bytes) => bytes / unit).reverse();
  const x = viewOf(base, { shape, strides, offset: view.integer('offset_bytes') / unit }, f.where);

  const factors = files.optionalText('freq_factors');
  const plan = ggml.ropePlanFromGgml({
    ne: ne as [number, number, number, number],
    n_dims: f.integer('n_dims'),
    mode: f.integer('mode'),
    sections: f.integers('sections') as [number, number, number, number],
    n_ctx_orig: f.integer('n_ctx_orig'),
    freq_base: f.number('freq_base'),
    freq_scale: f.number('freq_scale'),
    ext_factor: f.number('ext_factor'),
    attn_factor: f.number('attn_factor'),
    beta_fast: f.number('beta_fast'),
    beta_slow: f.number('beta_slow'),
    n_offs: f.optionalInteger('n_offs', 0),
    freq_factors: factors === undefined ? undefined : array('f32', factors, 'freq_factors'),
    positions: array('i32', files.text('pos'), 'pos'),
    direction: f.oneOf('direction', ['forward', 'backward'] as const),
    recipe,
  });

  const out = f.flag('inplace') ? x : runner.allocate(type, shape);
  const call = bindRope(plan, x, out);
  const notRun = declined(runner, call);
  if (notRun) return notRun;

  const expected = tensorFrom(array(type, files.text('out'), 'out'), { dtype: type, shape });
  // Exact tables are as far from ggml's result as the exact result is, and the manifest has that NMSE.
  const limit =
    recipe === 'ggml-f32' ? RECIPE_NMSE_LIMIT : ropeNmseLimit(type) + f.object('check').number('nmse_vs_f64');
  const verdict = judgeNmse('ROPE', await out.readNumbers(), await expected.readNumbers(), limit, type);
  const after = files.optionalText('base_after');
  return after === undefined ? verdict : allOf(verdict, await judgeRest(base, x, array(type, after, 'base_after')));
}

/** Judges a call in place on a view: the elements of the base outside the view keep their bits. */
async function judgeRest(base: Tensor, view: Tensor, expected: HostArray): Promise<CaseVerdict> {
  const got = await base.read();
  const inside = new Uint8Array(countElements(base.shape));
  walk(view, (at) => {
    inside[at] = 1;
  });
  const keep = <A extends HostArray>(array: A): A => array.filter((_: unknown, at: number) => !inside[at]) as A;
  return judgeBits('ROPE', keep(got), keep(expected));
}
