/** HuggingFace's vectors: inv_freq, attention factor and rotated heads of a config.json, by transformers. @module */
import { huggingface } from '@ropewalk/dialects';
import { bindRope, planRope, type RopeSpec, type Runner, ropeFrequencies, type TableRecipe } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type Fields, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { readNpy, type VectorFolder } from '../folder.js';
import { allOf, judgeClose, judgeNmse } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, declined } from '../runner.js';
import { HF_RECIPE_NMSE_LIMIT, ropeNmseLimit } from '../tolerance.js';

/** Makes the cases of a folder, each with float64 tables and with transformers' f32 recipe. */
export function huggingfaceVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  return manifest.objects('cases').flatMap((f) =>
    (['float64', 'hf-f32'] as const).map((recipe) => ({
      suite: 'huggingface',
      label: formatLabel('HF_ROPE', {
        vector: `huggingface/${f.text('name')}`,
        model_type: f.object('config').text('model_type'),
        rope_type: f.object('config').optionalObject('rope_scaling')?.text('rope_type') ?? 'default',
        head_dim: f.object('config').integer('head_dim'),
        context: f.optionalInteger('context'),
        recipe,
      }),
      run: (runner: Runner) => runCase(folder, f, recipe, runner),
    })),
  );
}

async function runCase(folder: VectorFolder, f: Fields, recipe: TableRecipe, runner: Runner): Promise<CaseVerdict> {
  const rope = readRope(f);
  const rotaryDim = rope.rotaryDim ?? rope.headDim;
  const { invFreq, attentionFactor } = ropeFrequencies({ ...rope, rotaryDim });
  const check = f.object('check');
  // torch's frequencies are f32. The manifest says how far they are from the exact ones.
  const torchFreq = await readNpy(folder, f.text('inv_freq'), 'f32').readNumbers();
  const freqBound = check.number('max_rel_inv_freq_vs_f64') + 2 * UNIT_ROUNDOFF.f32 * 2 ** -20;
  const frequencies = judgeClose('inv_freq', invFreq, torchFreq, { atol: 0, rtol: freqBound });
  const factors = [[attentionFactor], [f.number('attention_factor')]] as const;
  const magnitude = judgeClose('attention_factor', ...factors, { atol: 0, rtol: UNIT_ROUNDOFF.f32 });

  const x = readNpy(folder, f.text('x'), 'f32');
  const out = runner.allocate('f32', x.shape);
  const positions = f.integers('positions', -(2 ** 31), 2 ** 31 - 1);
  const call = bindRope(planRope({ ...rope, positions, recipe }), x, out);
  const verdict = declined(runner, call);
  if (verdict) return verdict;
  const limit = recipe === 'hf-f32' ? HF_RECIPE_NMSE_LIMIT : ropeNmseLimit('f32') + check.number('nmse_vs_f64');
  const y = await readNpy(folder, f.text('y'), 'f32').readNumbers();
  return allOf(frequencies, magnitude, judgeNmse('HF_ROPE', await out.readNumbers(), y, limit));
}

function readRope(f: Fields): RopeSpec {
  const model = huggingface.ropeFromConfig(f.raw('config'), { context: f.optionalInteger('context', 1, 2 ** 31 - 1) });
  return model.layers[0]?.rope ?? fail('FORMAT', f.path('config'), 'layer 0 of this model has no RoPE');
}
