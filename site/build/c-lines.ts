/**
 * The lines that a bug has wrong, and the right ones, in C. They are steps of one scalar kernel, in what C shares with the
 * body of a CUDA kernel: test/site/c-lines.peers.test.ts compiles it as C with each line and runs it on the bug's own vector.
 * Names are those of ggml and vLLM where these have one. Where bugs give the same y on the vector that they share, the test
 * cannot say which of them the lines are.
 *
 * @module
 */
import { type Bug as BugOf, type Lines as LinesOf, linesOf } from './bug-lines.js';

const loop = (index: string, to: string): string => `for (int ${index} = 0; ${index} < ${to}; ${index}++)`;
const POS = 'pos[b * n_tokens + t]';
const ROW = '((b * n_tokens + t) * n_heads + h) * head_dim';
const power = (exponent: string): string => `float freq = powf(base, ${exponent});`;

/** The steps of the kernel in their order, as a model of plain RoPE has them. */
const STEPS = {
  start: '',
  dims: 'const int n_dims = rotary_dim;',
  batches: loop('b', 'n_batch'),
  tokens: loop('t', 'n_tokens'),
  heads: loop('h', 'n_heads'),
  headOpen: '{',
  source: `const float *src = x + ${ROW};`,
  target: `float *dst = y + ${ROW};`,
  setup: '',
  first: '',
  given: '',
  convert: '',
  norm: '',
  rest: 'for (int i = n_dims; i < head_dim; i++) dst[i] = src[i];',
  pairs: loop('j', 'n_dims / 2'),
  pairOpen: '{',
  sector: '',
  axis: '',
  position: `const int p = ${POS};`,
  alpha: '',
  base: 'const float base = rope_theta;',
  freq: power('-2.0f * j / n_dims'),
  corr: '',
  edges: '',
  ramp: '',
  mix: '',
  angle: 'float theta = p * freq;',
  magnitude: '',
  table: 'const float c = cosf(theta), s = sinf(theta);',
  index: 'const int i0 = j, i1 = j + n_dims / 2;',
  load: 'const float x0 = src[i0], x1 = src[i1];',
  turn: 'const float y0 = x0 * c - x1 * s, y1 = x0 * s + x1 * c;',
  store: 'dst[i0] = y0; dst[i1] = y1;',
  next: '',
  pairClose: '}',
  after: '',
  headClose: '}',
};
type Step = keyof typeof STEPS;
type Lines = LinesOf<Step>;
type Bug = BugOf<Step>;

/** A bug in one step, and a bug that leaves steps out: the page shows where they are missing. */
const one = (step: Step, wrong: string, right: Lines = {}): Bug => ({ right, wrong: { [step]: wrong } });
const without = (right: Lines, ...left: readonly Step[]): Bug => {
  const nothing = Object.fromEntries(left.map((step) => [step, '']));
  return { right, wrong: { ...nothing, angle: STEPS.angle } };
};
const position = (value: string, type = 'int', right: Lines = {}): Bug =>
  one('position', `const ${type} p = ${value};`, right);
const at = (index: string): Bug => position(`pos[${index}]`);
const frequency = (exponent: string, right = STEPS.freq): Bug => one('freq', power(exponent), { freq: right });
const table = (c: string, s: string): string => `const float c = ${c}, s = ${s};`;
const trig = (angle: string): string => table(`cosf(${angle})`, `sinf(${angle})`);

/** The steps of pairs (2j, 2j + 1), and of those that are read or written by their own indices. */
const ADJACENT = { index: 'const int i0 = 2 * j, i1 = 2 * j + 1;' };
const loads = (from: string, i0: string, i1: string): string => `const float x0 = ${from}[${i0}], x1 = ${from}[${i1}];`;
const stores = (i0: string, i1: string): string => `dst[${i0}] = y0; dst[${i1}] = y1;`;
const LOAD = { halves: loads('src', 'j', 'j + n_dims / 2'), adjacent: loads('src', '2 * j', '2 * j + 1') };
const STORE = { halves: stores('j', 'j + n_dims / 2'), adjacent: stores('2 * j', '2 * j + 1') };

/** Cos and sin of each element, for bugs whose two members have angles of their own. */
const elementwise = (freq: (i: string) => string): string =>
  [0, 1].map((k) => `const float theta${k} = p * ${freq(`i${k}`)};`).join('\n');
const MEMBERS: Lines = {
  freq: '',
  table: '',
  turn: `const float y0 = x0 * cosf(theta0) - x1 * sinf(theta0);
const float y1 = x0 * sinf(theta1) + x1 * cosf(theta1);`,
};
const lookedUp = (pair: string): string => elementwise((i) => `powf(base, -2.0f * (${pair.replace('i', i)}) / n_dims)`);
const inMembers = (index: Lines, right: string, wrong: string): Bug => {
  // The angles need the indices of the members.
  const { index: i = STEPS.index } = index;
  return one('angle', lookedUp(wrong), { ...MEMBERS, base: `${STEPS.base}\n${i}`, index: '', angle: lookedUp(right) });
};

/** A converter, which orders the rows of a key's weights for the kernel: here those of one head, which are x. */
const converter = (to: string): string => `${loop('r', 'head_dim')} q[${to}] = w[r];`;
const REORDERED = converter('r % half * 2 + r / half');
const CONVERTED: Lines = {
  ...ADJACENT,
  setup: 'const int half = head_dim / 2;',
  given: `float w[head_dim], q[head_dim];\n${loop('r', 'head_dim')} w[r] = src[r % half * 2 + r / half];`,
  convert: REORDERED,
  load: loads('q', 'i0', 'i1'),
};

/** A kernel that works in place on part of x, or writes only part of a y that held zeros. */
const filled = (value: string): Lines => ({
  start: `for (int i = 0; i < n_batch * n_tokens * n_heads * head_dim; i++) y[i] = ${value};`,
  rest: '',
});
const IN_PLACE = filled('x[i]');
const shortened = (start: Lines, step: 'batches' | 'tokens' | 'heads', to: string): Bug => {
  const others = start === IN_PLACE ? 'y is x, so that the others are copied' : 'y was 0, and the others stay so';
  return one(step, `// ${others}\n${loop(step[0]!, to)}`, start);
};
const skipped = (when: string): Bug => position(`${POS};\nif (${when}) continue`, 'int', IN_PLACE);

const MAGNITUDE = '0.1f * logf(factor) + 1';
const mscale = (k: string): string => `(0.1f * ${k} * logf(factor) + 1)`;
const magnitude = (value: string): string => `const float magnitude = ${value};`;
const SCALED = table('cosf(theta) * magnitude', 'sinf(theta) * magnitude');
const corr = (fast: string, slow: string, context = 'n_ctx_orig'): string =>
  [`low = n_dims * logf(${context} / (${fast}`, `high = n_dims * logf(${context} / (${slow}`]
    .map((edge) => `float ${edge} * 2 * M_PI)) / (2 * logf(base));`)
    .join('\n');
const UNTRUNCATED = 'low = fmaxf(0, low); high = fminf(n_dims - 1, high);';
const ramp = (pair: string): string =>
  `const float ramp = fminf(1, fmaxf(0, (${pair} - low) / fmaxf(0.001f, high - low)));`;
const mixed = (share: string, slow = 'freq / factor'): string =>
  `const float mix = ${share};\nfreq = ${slow} * (1 - mix) + freq * mix;`;
const RAMPED = {
  corr: corr('beta_fast', 'beta_slow'),
  edges: 'low = fmaxf(0, floorf(low)); high = fminf(n_dims - 1, ceilf(high));',
  ramp: ramp('j'),
  mix: mixed('(1 - ramp) * ext_factor'),
};
const YARN = { ...RAMPED, magnitude: magnitude(MAGNITUDE), table: SCALED };
const GPT_OSS = { ...YARN, edges: UNTRUNCATED };
const DEEPSEEK = {
  ...YARN,
  magnitude: magnitude(`${mscale('mscale')} / ${mscale('mscale_all_dim')}`),
  load: LOAD.adjacent,
  store: STORE.halves,
};
const NO_RAMP = { corr: '', edges: '', ramp: '', mix: '' };
const RAMP_OF_HF = 'const float ramp = fminf(1, fmaxf(0, (j - low) / (high - low)));';
const rampOf = (of: (i: string) => string): string =>
  [0, 1].map((k) => `const float ramp${k} = fminf(1, fmaxf(0, (${of(`i${k}`)} - low) / (high - low)));`).join('\n');

const CHAIN = 'wavelen < high_freq_wavelen ? freq : wavelen > low_freq_wavelen ? freq / factor';
const SMOOTH = 'const float smooth = (n_ctx_orig / wavelen - low_freq_factor) / (high_freq_factor - low_freq_factor);';
const LLAMA3 = {
  corr: 'const float wavelen = 2 * M_PI / freq;',
  edges: `const float high_freq_wavelen = n_ctx_orig / high_freq_factor;
const float low_freq_wavelen = n_ctx_orig / low_freq_factor;`,
  ramp: SMOOTH,
  mix: `freq = ${CHAIN}
     : smooth * freq + (1 - smooth) * freq / factor;`,
};
const llama3 = (step: Step, wrong: string): Bug => one(step, wrong, LLAMA3);
const FREQ_FACTORS = { ...ADJACENT, mix: 'freq /= freq_factors[j];' };
const LONGROPE = {
  mix: 'freq /= (n_ctx > n_ctx_orig ? long_factor : short_factor)[j];',
  magnitude: magnitude('sqrtf(1 + logf(factor) / logf(n_ctx_orig))'),
  table: SCALED,
};
const alpha = (context: string): string => `const float alpha = factor * ${context} / n_ctx_orig - (factor - 1);`;
const NTK = {
  alpha: alpha('fmaxf(n_ctx, n_ctx_orig)'),
  base: 'const float base = rope_theta * powf(alpha, n_dims / (n_dims - 2.0f));',
};
const PROPORTIONAL = { freq: 'float freq = j < rotated_pairs ? powf(base, -2.0f * j / head_dim) : 0;' };
const LINEAR = { position: `const float p = ${POS} / factor;` };

const BF16 = (value: string): string => `__bfloat162float(__float2bfloat16(${value}))`;
const F16 = (value: string): string => `__half2float(__float2half(${value}))`;
const SERIES = `const float q = theta * theta;
const float c = 1 - q / 2 + q * q / 24 - q * q * q / 720;
const float s = theta * (1 - q / 6 + q * q / 120 - q * q * q / 5040);`;
const cast = (rounding: string): string =>
  [0, 1].map((k) => `dst[i${k}] = __bfloat162float(__float2bfloat16_${rounding}(y${k}));`).join('\n');

const runs = (sector: string): string =>
  `const int axis = ${sector} < sections[0] ? 0 : ${sector} < sections[0] + sections[1] ? 1 : 2;`;
const turns = (rest: string): string =>
  `const int axis = j % 3 == 1 && j < 3 * sections[1] ? 1
               : j % 3 == 2 && j < 3 * sections[2] ? 2
               : ${rest};`;
const AXES = { position: 'const int p = pos[(axis * n_batch + b) * n_tokens + t];' };
const SECTIONS = {
  ...AXES,
  sector: 'const int sector = j % (sections[0] + sections[1] + sections[2]);',
  axis: runs('sector'),
};
const INTERLEAVED = { ...AXES, axis: turns('0') };
const GGML_AXES = { ...AXES, axis: turns('j % 3 == 0 && j < 3 * sections[0] ? 0 : 3') };
const VISION = { ...SECTIONS, freq: power('-2.0f * (j % sections[0]) / (n_dims / 2)') };

const norm = (to: string, from: string, over = 'head_dim', by = ' * weight[i]', sum = 'src'): string =>
  `float sum = 0;
${loop('i', over)} sum += ${sum}[i] * ${sum}[i];
const float scale = 1 / sqrtf(sum / ${over.includes(' ') ? `(${over})` : over} + eps);
${loop('i', 'head_dim')} ${to}[i] = ${from}[i] * scale${by};`;
const NORM = {
  given: 'float q[head_dim];',
  norm: norm('q', 'src'),
  rest: STEPS.rest.replace('src', 'q'),
  load: loads('q', 'i0', 'i1'),
};
const normed = (wrong: string, right: Lines = NORM): Bug => one('norm', wrong, right);
const GEMMA = { ...NORM, norm: norm('q', 'src', 'head_dim', ' * (1 + gemma_weight[i])') };
const BACKWARD = 'const float y0 = x0 * c + x1 * s, y1 = x1 * c - x0 * s;';
/** A row of cos and sin, with the next row after it. */
const CACHE = `float cache[2 * n_dims];
for (int i = 0; i < 2 * n_dims; i++) {
  const float angle = (p + i / n_dims) * powf(base, -2.0f * (i % (n_dims / 2)) / n_dims);
  cache[i] = i % n_dims < n_dims / 2 ? cosf(angle) : sinf(angle);
}`;

const BUGS: Readonly<Record<string, Bug>> = {
  'pairs-interleaved-for-half': { wrong: ADJACENT },
  'pairs-half-for-interleaved': one('index', STEPS.index, ADJACENT),
  'table-of-halves-for-interleaved': inMembers(ADJACENT, 'i / 2', 'i % (n_dims / 2)'),
  'written-as-halves-for-interleaved': one('store', STORE.halves, { ...ADJACENT, store: STORE.adjacent }),
  'read-interleaved-for-half': one('load', LOAD.adjacent, { load: LOAD.halves }),
  'written-interleaved-for-half': one('store', STORE.adjacent, { store: STORE.halves }),
  'pairs-left-in-place': one('store', STORE.adjacent, DEEPSEEK),
  'mrope-interleaved-for-pairs': { right: INTERLEAVED, wrong: { axis: INTERLEAVED.axis, ...ADJACENT } },
  'weights-not-permuted': one('convert', converter('r'), CONVERTED),
  'weights-permuted-twice': one(
    'convert',
    `${REORDERED}\n${loop('r', 'head_dim')} w[r] = q[r];\n${REORDERED}`,
    CONVERTED,
  ),
  'weights-permuted-for-half': one('convert', REORDERED, {
    ...CONVERTED,
    index: STEPS.index,
    given: `float w[head_dim], q[head_dim];\n${loop('r', 'head_dim')} w[r] = src[r];`,
    convert: converter('r'),
  }),
  'weights-permuted-by-query-heads': one('first', 'const int rows = wk_rows / n_q_heads;', {
    ...CONVERTED,
    first: 'const int rows = wk_rows / n_kv_heads;',
    convert: `for (int g = 0; g < head_dim; g += rows)
  for (int r = 0; r < rows; r++) q[g + r % (rows / 2) * 2 + r / (rows / 2)] = w[g + r];`,
  }),
  'frequencies-over-head-dim': one('freq', power('-2.0f * j / head_dim'), ADJACENT),
  'pair-distance-half-a-head': one('index', 'const int i0 = j, i1 = j + head_dim / 2;', IN_PLACE),
  'whole-head-rotated': one('dims', 'const int n_dims = head_dim;', ADJACENT),
  'whole-head-over-rotary-dim': one('pairs', loop('j', 'head_dim / 2'), ADJACENT),
  'rotary-factor-twice': one('dims', 'const int n_dims = partial_rotary_factor * rotary_dim;', {
    ...ADJACENT,
    dims: 'const int n_dims = partial_rotary_factor * head_dim;',
  }),
  'window-at-start': one('index', ADJACENT.index, {
    ...IN_PLACE,
    index: 'const int i0 = rotary_offset + 2 * j, i1 = i0 + 1;',
  }),
  'window-at-end': one('index', 'const int i0 = head_dim - n_dims + 2 * j, i1 = i0 + 1;', { ...IN_PLACE, ...ADJACENT }),
  'rest-not-copied': one('rest', '// y holds 0 from n_dims on', { ...ADJACENT, ...filled('0'), rest: STEPS.rest }),
  'proportional-over-rotated': one('freq', PROPORTIONAL.freq.replace('head_dim', '(2 * rotated_pairs)'), PROPORTIONAL),
  'proportional-identity-pairs-turned': frequency('-2.0f * j / head_dim', PROPORTIONAL.freq),
  'proportional-block-in-front': one('dims', 'const int n_dims = 2 * rotated_pairs;', PROPORTIONAL),
  'proportional-as-partial': {
    right: PROPORTIONAL,
    wrong: { dims: 'const int n_dims = 2 * rotated_pairs;', freq: STEPS.freq },
  },
  'proportional-factor-ignored': one('freq', PROPORTIONAL.freq, {
    freq: PROPORTIONAL.freq.replace('head_dim)', 'head_dim) / factor'),
  }),
  'magnitude-missing': one('table', STEPS.table, YARN),
  'magnitude-squared': {
    right: YARN,
    wrong: {
      table: SCALED,
      turn: 'const float y0 = magnitude * (x0 * c - x1 * s), y1 = magnitude * (x0 * s + x1 * c);',
    },
  },
  'magnitude-square-root': one('magnitude', magnitude(`sqrtf(${MAGNITUDE})`), GPT_OSS),
  'magnitude-by-log10': one('magnitude', magnitude(MAGNITUDE.replace('logf', 'log10f')), GPT_OSS),
  'magnitude-on-cos-only': one('table', table('cosf(theta) * magnitude', 'sinf(theta)'), GPT_OSS),
  'magnitude-on-whole-head': one('rest', STEPS.rest.replace('src[i]', 'src[i] * magnitude'), {
    ...YARN,
    given: YARN.magnitude,
    magnitude: '',
  }),
  'attention-factor-ignored': one('magnitude', YARN.magnitude, { ...YARN, magnitude: magnitude('attention_factor') }),
  'mscale-ignored': one('magnitude', YARN.magnitude, DEEPSEEK),
  'mscale-all-dim-ignored': one('magnitude', magnitude(mscale('mscale').slice(1, -1)), DEEPSEEK),
  'yarn-betas-swapped': {
    right: { ...DEEPSEEK, ramp: RAMP_OF_HF },
    wrong: { corr: corr('beta_slow', 'beta_fast'), ramp: RAMP_OF_HF },
  },
  'yarn-betas-swapped-in-ggml': {
    right: DEEPSEEK,
    wrong: { corr: corr('beta_slow', 'beta_fast'), ramp: RAMPED.ramp },
  },
  'yarn-ignored': { right: DEEPSEEK, wrong: { ...NO_RAMP, angle: STEPS.angle, magnitude: '', table: STEPS.table } },
  'yarn-frequencies-ignored': without(DEEPSEEK, 'corr', 'edges', 'ramp', 'mix'),
  'yarn-always-truncated': one('edges', YARN.edges, GPT_OSS),
  'yarn-never-truncated': one('edges', UNTRUNCATED, DEEPSEEK),
  'yarn-context-extended': one('corr', corr('beta_fast', 'beta_slow', '(n_ctx_orig * factor)'), DEEPSEEK),
  'yarn-ext-factor-ignored': one('mix', mixed('1 - ramp'), {
    ...YARN,
    ...ADJACENT,
    freq: `${STEPS.freq}\n${FREQ_FACTORS.mix}`,
    magnitude: magnitude(`attn_factor * (${MAGNITUDE})`),
  }),
  'yarn-mix-by-factor': one('mix', mixed('(1 - ramp) * factor'), DEEPSEEK),
  'yarn-ramp-of-first-pair': one('ramp', ramp('0'), DEEPSEEK),
  'yarn-as-clamped-positions': {
    right: DEEPSEEK,
    wrong: {
      position: `const float p = fminf(${POS} / factor, n_ctx_orig - 1);`,
      ...NO_RAMP,
      angle: STEPS.angle,
      magnitude: '',
      table: STEPS.table,
    },
  },
  'yarn-ramp-reversed': one('mix', mixed('ramp * ext_factor'), DEEPSEEK),
  'yarn-clamped-at-pairs': one('edges', YARN.edges.replace('n_dims', 'n_dims / 2'), YARN),
  'yarn-ramp-over-dims': one('ramp', ramp('2 * j'), DEEPSEEK),
  'yarn-ramp-by-element': one(
    'ramp',
    rampOf((i) => i),
    {
      ...YARN,
      base: `${STEPS.base}\n${STEPS.index}`,
      index: '',
      ramp: rampOf((i) => `${i} % (n_dims / 2)`),
      mix: '',
      angle: elementwise((i) => `(freq / factor * ramp${i[1]} + freq * (1 - ramp${i[1]}))`),
      table: '',
      turn: MEMBERS.turn!.replace(/= (.*);/g, '= magnitude * ($1);'),
    },
  ),
  'yarn-factor-in-power': one(
    'mix',
    mixed('(1 - ramp) * ext_factor', 'powf(base * factor, -2.0f * j / n_dims)'),
    DEEPSEEK,
  ),
  'yarn-as-linear': { right: DEEPSEEK, wrong: { ...NO_RAMP, mix: 'freq /= factor;' } },
  'ext-factor-as-zero': one('setup', 'const float ext = 0.0f;', {
    ...DEEPSEEK,
    setup: 'const float ext = ext_factor;',
    mix: mixed('(1 - ramp) * ext'),
  }),
  'yarn-as-llama3': {
    right: DEEPSEEK,
    wrong: {
      ...NO_RAMP,
      ramp: 'const float smooth = fminf(1, fmaxf(0, (n_ctx_orig * freq / (2 * M_PI) - 1) / (4 - 1)));',
      mix: 'freq = smooth * freq + (1 - smooth) * freq / factor;',
      magnitude: '',
      table: STEPS.table,
    },
  },
  'yarn-not-in-backward': {
    right: { ...YARN, ...ADJACENT, mix: 'freq = freq / factor * ramp + freq * (1 - ramp);', turn: BACKWARD },
    wrong: {
      mix: 'if (forward) freq = freq / factor * ramp + freq * (1 - ramp);',
      magnitude: magnitude(`forward ? ${MAGNITUDE} : 1`),
    },
  },
  'llama3-ignored': without(LLAMA3, 'corr', 'edges', 'ramp', 'mix'),
  'llama3-limits-swapped': llama3(
    'edges',
    LLAMA3.edges
      .replace('n_ctx_orig / high', 'n_ctx_orig / LOW')
      .replace('n_ctx_orig / low', 'n_ctx_orig / high')
      .replace('LOW', 'low'),
  ),
  'llama3-no-smooth-step': llama3('mix', 'freq = wavelen < high_freq_wavelen ? freq : freq / factor;'),
  'llama3-step-in-the-middle': llama3(
    'mix',
    'freq = n_ctx_orig / wavelen > (low_freq_factor + high_freq_factor) / 2 ? freq : freq / factor;',
  ),
  'llama3-smooth-reversed': llama3('mix', `freq = ${CHAIN}\n     : (1 - smooth) * freq + smooth * freq / factor;`),
  'llama3-wavelength-without-two-pi': llama3('corr', 'const float wavelen = 1 / freq;'),
  'llama3-as-linear': llama3('mix', 'freq /= factor;'),
  'freq-factors-ignored': without(FREQ_FACTORS, 'mix'),
  'freq-factors-multiplied': one('mix', 'freq *= freq_factors[j];', FREQ_FACTORS),
  'freq-factors-one-pair-on': one('mix', 'freq /= freq_factors[j + 1];', FREQ_FACTORS),
  'freq-factors-by-dim': one('mix', 'freq /= freq_factors[2 * j];', FREQ_FACTORS),
  'longrope-long-for-short': one('mix', LONGROPE.mix.replace('n_ctx ', 'n_ctx_allocated '), LONGROPE),
  'longrope-short-for-long': one('mix', LONGROPE.mix.replace('n_ctx ', 'n_tokens '), LONGROPE),
  'longrope-factors-ignored': without(LONGROPE, 'mix'),
  'longrope-factors-multiplied': one('mix', LONGROPE.mix.replace('/=', '*='), LONGROPE),
  'longrope-factors-one-pair-on': one('mix', LONGROPE.mix.replace('[j]', '[j + 1]'), LONGROPE),
  'longrope-magnitude-missing': one('table', STEPS.table, LONGROPE),
  'ntk-ignored': { right: NTK, wrong: { alpha: '', base: STEPS.base } },
  'ntk-always': one('alpha', alpha('n_ctx_max'), NTK),
  'ntk-below-original': one('alpha', alpha('n_ctx'), NTK),
  'ntk-by-factor-alone': { right: NTK, wrong: { alpha: '', base: NTK.base.replace('alpha', 'factor') } },
  'ntk-exponent-one': one('base', 'const float base = rope_theta * alpha;', NTK),
  'ntk-base-of-each-position': one('alpha', alpha('fmaxf(p + 1, n_ctx_orig)'), NTK),
  'base-default': one('base', 'const float base = 10000.0f;'),
  'base-of-other-layers': one('base', 'const float base = 1000000.0f; // of the layers with full attention'),
  'head-dim-from-hidden': frequency('-2.0f * j / (hidden_size / num_heads)', power('-2.0f * j / head_dim')),
  'exponent-of-odd-dimension': frequency('-(2.0f * j + 1) / n_dims'),
  'exponent-of-next-pair': frequency('-2.0f * (j + 1) / n_dims'),
  'exponent-of-previous-pair': frequency('-2.0f * (j - 1) / n_dims'),
  'exponent-without-two': frequency('-1.0f * j / n_dims'),
  'exponent-without-minus': frequency('2.0f * j / n_dims'),
  'exponent-up-to-one': frequency('-1.0f * j / (n_dims / 2 - 1)', power('-1.0f * j / (n_dims / 2)')),
  'frequencies-linear': one(
    'freq',
    `const float last = powf(base, 2.0f / n_dims - 1);
float freq = 1 + (last - 1) * j / (n_dims / 2 - 1);`,
  ),
  'angle-taken-for-degrees': one('table', trig('theta * M_PI / 180')),
  'angle-turned-into-degrees': one('table', trig('theta * 180 / M_PI')),
  'angle-times-pi': one('table', table('cospif(theta)', 'sinpif(theta)')),
  'linear-ignored': one('position', STEPS.position, LINEAR),
  'linear-multiplied': one('position', LINEAR.position.replace('/', '*'), LINEAR),
  'position-divided-in-integers': position(`${POS} / (int)factor`, 'int', LINEAR),
  'linear-of-other-layers': one(
    'angle',
    'float theta = p / 8.0f * freq; // the factor of the layers with full attention',
  ),
  'position-in-bf16': position(BF16(POS), 'float'),
  'position-in-f16': position(F16(POS), 'float'),
  'angle-in-bf16': one('angle', `float theta = ${BF16('p * freq')};`),
  'angle-in-f16': one('angle', `float theta = ${F16('p * freq')};`),
  'frequencies-in-bf16': one('freq', `float freq = ${BF16('powf(base, -2.0f * j / n_dims)')};`),
  'frequencies-in-f16': one('freq', `float freq = ${F16('powf(base, -2.0f * j / n_dims)')};`),
  'table-in-bf16': one('table', `const float c = ${BF16('cosf(theta)')};\nconst float s = ${BF16('sinf(theta)')};`, {
    ...DEEPSEEK,
    magnitude: '',
    table: STEPS.table,
  }),
  'table-in-f16': one('table', `const float c = ${F16('cosf(theta)')};\nconst float s = ${F16('sinf(theta)')};`, {
    ...DEEPSEEK,
    magnitude: '',
    table: STEPS.table,
  }),
  'table-in-f16-twice': one(
    'table',
    `const __half m = __float2half(magnitude);
const float c = __half2float(__hmul(__float2half(cosf(theta)), m));
const float s = __half2float(__hmul(__float2half(sinf(theta)), m));`,
    YARN,
  ),
  'angle-recurrence-in-f32': {
    wrong: {
      first: 'float theta = pos[b * n_tokens + t];\nconst float theta_scale = powf(rope_theta, -2.0f / n_dims);',
      angle: '',
      next: 'theta *= theta_scale; // for the next pair',
    },
  },
  'sin-cos-unreduced': {
    right: { freq: 'const double freq = pow(base, -2.0 * j / n_dims);' },
    wrong: {
      angle: `float theta = p * freq;
const float turns = rint(theta / (2 * M_PI));
theta -= turns * 6.2831853f;`,
    },
  },
  'sine-polynomial-unreduced': one('table', SERIES),
  'sine-polynomial-too-short': {
    wrong: { angle: `${STEPS.angle}\ntheta -= 2 * M_PI * rint(theta / (2 * M_PI));`, table: SERIES },
  },
  'sine-from-table': one(
    'table',
    `const int k = lrint(theta * 1024 / (2 * M_PI)) & 1023;
const float c = sin_lut[(k + 256) & 1023], s = sin_lut[k];`,
    { ...DEEPSEEK, magnitude: '', table: STEPS.table },
  ),
  'angle-accumulated-in-f16': one(
    'angle',
    `const __half step = __float2half(freq);
__half sum = __float2half(0);
${loop('n', 'p')} sum = __hadd(sum, step); // token by token
float theta = __half2float(sum);`,
  ),
  'output-rounded-down': one('store', cast('rd'), { ...YARN, store: cast('rn') }),
  'output-rounded-toward-zero': one('store', cast('rz'), { ...YARN, store: cast('rn') }),
  'position-plus-one': position(`${POS} + 1`),
  'position-minus-one': position(`${POS} - 1`),
  'decode-at-zero': position(`n_tokens == 1 ? 0 : ${POS}`),
  'restarts-at-zero': position(`${POS} - pos[b * n_tokens]`),
  'all-at-first-position': at('b * n_tokens'),
  'all-at-last-position': at('b * n_tokens + n_tokens - 1'),
  'position-of-next-token': at('b * n_tokens + (t + 1 < n_tokens ? t + 1 : t)'),
  'positions-rolled': at('b * n_tokens + (t + 1) % n_tokens'),
  'position-of-previous-token': position('t == 0 ? 0 : pos[b * n_tokens + t - 1]'),
  'table-of-previous-call': position(`${POS} - n_tokens`),
  'counts-on-from-first': position('pos[b * n_tokens] + t'),
  'positions-ignored': position('t'),
  'left-padding-ignored': one(
    'position',
    `int longest = 0;
for (int i = 1; i < n_batch; i++)
  if (pos[i * n_tokens + n_tokens - 1] > pos[longest * n_tokens + n_tokens - 1]) longest = i;
const int p = pos[longest * n_tokens + t];`,
  ),
  'positions-of-batch-0': at('t'),
  'position-in-int16': position(POS, 'int16_t'),
  'position-in-uint16': position(POS, 'uint16_t'),
  'position-in-int8': position(POS, 'int8_t'),
  'position-in-uint8': position(POS, 'uint8_t'),
  'int64-positions-as-int32': position('((const int32_t *)pos64)[b * n_tokens + t]', 'int32_t', {
    position: 'const int64_t p = pos64[b * n_tokens + t];',
  }),
  'table-wraps': position(`${POS} % 4096`),
  'table-ends': position(`${POS} < 4096 ? ${POS} : 4095`),
  'beyond-table-not-rotated': skipped('p >= 4096'),
  'position-plus-head': position(`${POS} + h`),
  'head-for-position': position('h'),
  'batch-for-sequence': at('b'),
  'heads-and-tokens-exchanged': at('b * n_tokens + (t * n_heads + h) % n_tokens'),
  'positions-sequence-first': at('t * n_batch + b'),
  'tokens-sequence-first': {
    wrong: {
      position: `const int row = b * n_tokens + t;
const int p = pos[row % n_batch * n_tokens + row / n_batch];`,
    },
  },
  'only-first-head': shortened(IN_PLACE, 'heads', '1'),
  'half-of-the-heads': shortened(IN_PLACE, 'heads', '(n_heads + 1) / 2'),
  'last-head-missed': shortened(IN_PLACE, 'heads', 'n_heads - 1'),
  'last-token-missed': shortened(IN_PLACE, 'tokens', 'n_tokens - 1'),
  'only-first-sequence': shortened(filled('0'), 'batches', '1'),
  'last-batch-missed': shortened(IN_PLACE, 'batches', 'n_batch - 1'),
  'last-batch-not-written': shortened(filled('0'), 'batches', 'n_batch - 1'),
  'last-token-not-written': shortened(filled('0'), 'tokens', 'n_tokens - 1'),
  'last-head-not-written': shortened(filled('0'), 'heads', 'n_heads - 1'),
  'heads-swapped': one('target', `float *dst = y + ${ROW.replace('h)', '(h ^ 1))')};`),
  'tokens-swapped': one('target', `float *dst = y + ${ROW.replace('t)', '(t ^ 1))')};`),
  'batches-swapped': one('target', `float *dst = y + ${ROW.replace('(b ', '((b ^ 1) ')};`),
  'second-members-not-written': one('store', 'dst[i0] = y0; // dst[i1] stays as it is, in place', IN_PLACE),
  'second-member-from-first': {
    right: IN_PLACE,
    wrong: { load: '', turn: 'dst[i0] = dst[i0] * c - dst[i1] * s;', store: 'dst[i1] = dst[i0] * s + dst[i1] * c;' },
  },
  'first-member-from-second': {
    right: IN_PLACE,
    wrong: { load: '', turn: 'dst[i1] = dst[i0] * s + dst[i1] * c;', store: 'dst[i0] = dst[i0] * c - dst[i1] * s;' },
  },
  'pairs-overwritten-in-place': {
    right: { ...DEEPSEEK, ...IN_PLACE },
    wrong: { load: LOAD.adjacent.replaceAll('src', 'dst'), store: STORE.halves },
  },
  'height-and-width-swapped': one('axis', runs('sector').replace('1 : 2', '2 : 1'), SECTIONS),
  'time-for-every-axis': one('axis', 'const int axis = 0;', SECTIONS),
  'sections-for-interleaved': one('axis', runs('j'), INTERLEAVED),
  'interleaved-for-sections': one('axis', INTERLEAVED.axis, SECTIONS),
  'interleaved-without-end': one('axis', 'const int axis = j % 3;', GGML_AXES),
  'rest-to-time-for-extra': one('axis', INTERLEAVED.axis, GGML_AXES),
  'sections-in-dims': one('sector', SECTIONS.sector.replace('j', '2 * j'), SECTIONS),
  'positions-token-first': position('pos[(b * n_tokens + t) * n_axes + axis]', 'int', SECTIONS),
  'vision-exponent-not-restarted': one('freq', power('-2.0f * j / (n_dims / 2)'), VISION),
  'vision-exponent-of-text': one('freq', STEPS.freq, VISION),
  'vision-exponent-over-head': one('freq', power('-2.0f * (j % sections[0]) / n_dims'), VISION),
  'norm-after-rotation': {
    right: NORM,
    wrong: { norm: '', load: STEPS.load, after: norm('dst', 'dst', 'head_dim', ' * weight[i]', 'dst') },
  },
  'norm-missing': { right: NORM, wrong: { norm: '', rest: STEPS.rest, load: STEPS.load } },
  'norm-without-weight': normed(norm('q', 'src', 'head_dim', '')),
  'norm-weight-less-one': normed(GEMMA.norm.replace('(1 + gemma_weight[i])', 'gemma_weight[i]'), GEMMA),
  'norm-over-rotary-dim': normed(norm('q', 'src', 'n_dims')),
  'norm-across-heads': normed(
    `const float *token = x + (b * n_tokens + t) * n_heads * head_dim;
${norm('q', 'src', 'n_heads * head_dim', ' * weight[i]', 'token')}`,
  ),
  'fused-table-by-element': inMembers({}, 'i % (n_dims / 2)', 'i / 2'),
  'rotated-twice': one('store', 'dst[i0] = y0 * c - y1 * s; dst[i1] = y0 * s + y1 * c; // again, as the cache is read'),
  'shift-added-to-new-keys': position(`${POS} + pos[b * n_tokens]`),
  'shift-turns-forward': position(`abs(${POS})`),
  'shift-skipped': skipped('p < 0'),
  'shift-without-sign': position(POS, 'uint32_t'),
  'cos-and-sin-swapped': one('table', table('sinf(theta)', 'cosf(theta)')),
  'sin-past-the-half': {
    right: {
      setup: 'const int half = n_dims / 2;',
      freq: '',
      angle: CACHE,
      table: table('cache[j]', 'cache[half + j]'),
    },
    wrong: {
      setup: 'int half = 1;\nwhile (half < n_dims / 2) half *= 2; // a power of two',
      table: table('cache[j]', 'cache[half + j]'),
    },
  },
  'turned-the-other-way': one('turn', BACKWARD),
  'minus-forgotten': one('turn', STEPS.turn.replace('-', '+')),
  'members-swapped': one('load', loads('src', 'i1', 'i0')),
  'members-written-swapped': one('store', stores('i1', 'i0')),
  'backward-runs-forward': one('turn', STEPS.turn, { turn: BACKWARD }),
  'position-looked-up-by-head': at('b * n_tokens + h % n_tokens'),
};

/** The bugs in C, by their ids. */
export const C_LINES = linesOf(STEPS, BUGS);

/** The bugs that are the rounding of float: the test runs the other ones in double, as their numbers are float64's. */
export const IN_FLOAT: readonly string[] = ['angle-recurrence-in-f32', 'sin-cos-unreduced'];
