/**
 * The lines that a bug has wrong, and the right ones, in torch. They are steps of one small kernel:
 * test/site/torch-lines.python.test.ts runs it with each line on the bug's own vector. A few bugs give the same y on the
 * vector that they share, such as yarn-ignored and yarn-frequencies-ignored, as its magnitude is 1: there the test cannot
 * say which of the two its lines are.
 *
 * @module
 */
import { type Bug as BugOf, type Lines as LinesOf, linesOf } from './bug-lines.js';

/** The steps of the kernel in their order, as a model of plain RoPE has them. */
const STEPS = {
  setup: '',
  frequencies: 'inv_freq = base ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)',
  edge: '',
  edges: '',
  ramp: '',
  mix: '',
  axis: '',
  angles: 'angles = positions[:, :, None, None] * inv_freq',
  magnitude: '',
  table: 'cos, sin = angles.cos(), angles.sin()',
  weights: '',
  project: '',
  norm: '',
  read: 'x0, x1 = x[..., :rotary_dim].chunk(2, -1)',
  turn: 'y0, y1 = x0 * cos - x1 * sin, x0 * sin + x1 * cos',
  write: 'y = torch.cat([y0, y1, x[..., rotary_dim:]], -1)',
  after: '',
};
type Step = keyof typeof STEPS;
type Lines = LinesOf<Step>;
type Bug = BugOf<Step>;

/** The steps of pairs (2j, 2j + 1) that differ from those of halves. */
const ADJACENT = {
  read: 'x0, x1 = x[..., :rotary_dim].unflatten(-1, (-1, 2)).unbind(-1)',
  write: 'y = torch.cat([torch.stack([y0, y1], -1).flatten(-2), x[..., rotary_dim:]], -1)',
};

/** Makes x by key weights, whose rows are permuted from halves to pairs when a checkpoint is converted. */
const permuted = (heads: string): string => `w = w.unflatten(0, (${heads}, 2, -1)).transpose(1, 2).flatten(0, 2)\n`;
const PROJECT = 'x = (hidden @ w.T).unflatten(-1, (num_kv_heads, -1))';
const HIDDEN = `hidden, num_kv_heads, num_heads = x.flatten(-2), heads, 4 * heads
w = torch.eye(num_kv_heads * head_dim)`;
const HALVES = `${HIDDEN}.unflatten(0, (num_kv_heads, -1, 2)).transpose(1, 2).flatten(0, 2)`;
const converted = (wrong: string): Bug => ({
  right: { ...ADJACENT, weights: HALVES, project: permuted('num_kv_heads') + PROJECT },
  wrong: { project: wrong + PROJECT },
});

const exponent = (over: string, to = 'rotary_dim'): string => `base ** (-torch.arange(0, ${to}, 2) / ${over})`;
const PLAIN = exponent('rotary_dim');
const frequencies = (wrong: string, right = PLAIN): Bug => ({
  right: { frequencies: `inv_freq = ${right}` },
  wrong: { frequencies: `inv_freq = ${wrong}` },
});
const at = (positions: string): Bug => ({ wrong: { angles: `positions = ${positions}\n${STEPS.angles}` } });

const WHOLE_HEAD = {
  read: 'x0, x1 = x.unflatten(-1, (-1, 2)).unbind(-1)',
  write: 'y = torch.stack([y0, y1], -1).flatten(-2)',
};
const WINDOW = 'x0, x1 = x[..., start : start + rotary_dim].unflatten(-1, (-1, 2)).unbind(-1)';
const windowFrom = (right: string, wrong: string): Bug => ({
  right: {
    setup: `start = ${right}`,
    read: WINDOW,
    write: 'y = x.clone()\ny[..., start : start + rotary_dim] = torch.stack([y0, y1], -1).flatten(-2)',
  },
  wrong: { setup: `start = ${wrong}`, read: WINDOW },
});

const proportional = (over: string): string =>
  `inv_freq = torch.zeros(head_dim // 2)\ninv_freq[:rotated_pairs] = ${exponent(over, '2 * rotated_pairs')}`;
const PROPORTIONAL: Lines = { frequencies: proportional('head_dim') };
const BLOCK: Lines = {
  read: 'x0, x1 = x[..., : 2 * rotated_pairs].chunk(2, -1)',
  write: 'y = torch.cat([y0, y1, x[..., 2 * rotated_pairs :]], -1)',
};

const MAGNITUDE = '0.1 * math.log(factor) + 1';
const MSCALE = '0.1 * mscale * math.log(factor) + 1';
const TABLE = 'cos, sin = magnitude * angles.cos(), magnitude * angles.sin()';
const EDGES = 'low, high = max(math.floor(edge(beta_fast)), 0), min(math.ceil(edge(beta_slow)), rotary_dim - 1)';
const UNTRUNCATED = 'low, high = max(edge(beta_fast), 0), min(edge(beta_slow), rotary_dim - 1)';
const SWAPPED = 'low, high = max(math.floor(edge(beta_slow)), 0), min(math.ceil(edge(beta_fast)), rotary_dim - 1)';
const YARN = {
  edge: `def edge(turns):
    return rotary_dim * math.log(original_context / (2 * math.pi * turns)) / (2 * math.log(base))`,
  edges: EDGES,
  ramp: 'ramp = ((torch.arange(rotary_dim // 2) - low) / (high - low)).clamp(0, 1)',
  mix: 'inv_freq = inv_freq * (1 - ramp) + inv_freq / factor * ramp',
  magnitude: `magnitude = ${MAGNITUDE}`,
  table: TABLE,
};
const UNRAMPED = { edge: '', edges: '', ramp: '', mix: '' };
const UNSCALED = { frequencies: STEPS.frequencies, ...UNRAMPED, magnitude: '', table: STEPS.table };
const GPT_OSS: Lines = { ...YARN, edges: UNTRUNCATED };
const DEEPSEEK = {
  ...YARN,
  read: ADJACENT.read,
  magnitude: `magnitude = (${MSCALE}) / (${MSCALE.replace('mscale', 'mscale_all_dim')})`,
};
const deepseek = (wrong: Lines): Bug => ({ right: DEEPSEEK, wrong });
/** YaRN as ggml has it, where the share of a pair's own frequency has a factor. */
const GGML = {
  ramp: 'ramp = ((torch.arange(rotary_dim // 2) - low) / max(high - low, 0.001)).clamp(0, 1)',
  mix: `mix = (1 - ramp) * ext_factor
inv_freq = inv_freq / factor * (1 - mix) + inv_freq * mix`,
  magnitude: `magnitude = attn_factor * (${MAGNITUDE})`,
};
const ggml = (wrong: Lines): Bug => ({ right: { ...DEEPSEEK, ramp: GGML.ramp, mix: GGML.mix }, wrong });
const PAIR_BY_PAIR = `for j in range(rotary_dim // 2):
    a, b, c, s = x[..., 2 * j], x[..., 2 * j + 1], cos[..., j], sin[..., j]
    y[..., j], y[..., j + rotary_dim // 2] = a * c - b * s, a * s + b * c`;
const REPEATED = 'cos, sin = (f(angles).repeat(1, 1, 1, 2) for f in (torch.cos, torch.sin))';
const REPEAT_INTERLEAVED = 'cos, sin = (f(angles).repeat_interleave(2, -1) for f in (torch.cos, torch.sin))';
/** A row of cos and sin, with the first half of the next row after it. */
const ROWS = `row = torch.cat([angles.cos(), angles.sin(), (angles + inv_freq).cos()], -1)
cos, sin = row[..., :pairs], row[..., half : half + pairs]`;
const ELEMENTWISE = {
  turn: 'turned = torch.cat([-x1, x0], -1)',
  write: 'y = torch.cat([x[..., :rotary_dim] * cos + turned * sin, x[..., rotary_dim:]], -1)',
};

const LLAMA3 = {
  edges: 'turns = original_context * inv_freq / (2 * math.pi)',
  ramp: 'kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)',
  mix: 'inv_freq = inv_freq * kept + inv_freq / factor * (1 - kept)',
};
const llama3 = (kept: string): Bug => ({ right: LLAMA3, wrong: { edges: LLAMA3.edges, ramp: `kept = ${kept}` } });
const SMOOTH = `smooth = inv_freq * kept + inv_freq / factor * (1 - kept)
inv_freq = torch.where((kept > 0) & (kept < 1), smooth, torch.where(kept > 0, inv_freq, inv_freq / factor))`;
const FREQ_FACTORS = { ...ADJACENT, frequencies: `inv_freq = ${PLAIN} / freq_factors` };
const freqFactors = (wrong: string): Bug => ({
  right: FREQ_FACTORS,
  wrong: { setup: `freq_factors = ${wrong}`, frequencies: FREQ_FACTORS.frequencies },
});
const BACKWARD = 'y0, y1 = x0 * cos + x1 * sin, x1 * cos - x0 * sin';
const NTK = 'base = base * (factor * context / original_context - factor + 1) ** (rotary_dim / (rotary_dim - 2))';
const LONGROPE = {
  setup: 'factors = long_factor if context > original_context else short_factor',
  frequencies: `inv_freq = ${PLAIN} / factors`,
  magnitude: 'magnitude = math.sqrt(1 + math.log(factor) / math.log(original_context))',
  table: TABLE,
};
const DYNAMIC_NTK = { setup: `context = max(context, original_context)\n${NTK}` };
const ntk = (wrong: string): Bug => ({ right: DYNAMIC_NTK, wrong: { setup: wrong } });
const cosSinOf = (angles: string): Bug => ({ wrong: { table: `cos, sin = ${angles}.cos(), ${angles}.sin()` } });
const SERIES = `q = angles**2
cos = 1 - q / 2 + q**2 / 24 - q**3 / 720
sin = angles * (1 - q / 6 + q**2 / 120 - q**3 / 5040)`;
/** Writes the rows that a kernel rotates into a y that it starts with. */
const rowsOf = (start: string, wrong: string): Bug => ({
  right: { write: STEPS.write.replace('y =', 'rotated ='), after: `y = ${start}\ny[:] = rotated` },
  wrong: { after: `y = ${start}\n${wrong}` },
});
const copied = (rows: string): Bug => rowsOf('x.clone()', `y[${rows}] = rotated[${rows}]`);
const unwritten = (rows: string): Bug => rowsOf('torch.zeros_like(x)', `y[${rows}] = rotated[${rows}]`);
const unless = (positions: string): Bug => ({
  wrong: { write: STEPS.write, after: `y = torch.where(positions[:, :, None, None] ${positions}, x, y)` },
});
const axis = (ofPairs: string): string => `axis = torch.tensor(${ofPairs})`;
const AXES = {
  axis: axis('[j % 3 if j < 60 else 0 for j in range(64)]'),
  angles: 'angles = positions[axis].permute(1, 2, 0)[:, :, None] * inv_freq',
};
const axes = (right: Lines, ofPairs: string): Bug => ({ right, wrong: { axis: axis(ofPairs) } });
const GGML_AXES = { ...AXES, axis: axis('[j % 3 if j < 60 or j % 3 == 0 else 3 for j in range(64)]') };
const SECTIONS = { ...AXES, axis: axis('[0] * 16 + [1] * 24 + [2] * 24') };
const VISION = {
  frequencies: `inv_freq = (${exponent('(rotary_dim // 2)', 'rotary_dim // 2')}).repeat(2)`,
  axis: axis('[0] * 20 + [1] * 20'),
  angles: AXES.angles,
};
const vision = (wrong: string): Bug => ({ right: VISION, wrong: { frequencies: `inv_freq = ${wrong}` } });
const NORM = 'x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight';
const norm = (wrong: string, by: string): Bug => ({ right: { norm: NORM }, wrong: { norm: NORM.replace(wrong, by) } });
/** Gemma stores its weight less 1. */
const GEMMA = { setup: 'weight = weight - 1', norm: NORM.replace('weight', '(1 + weight)') };

const BUGS: Readonly<Record<string, Bug>> = {
  'pairs-interleaved-for-half': { wrong: ADJACENT },
  'pairs-half-for-interleaved': { right: ADJACENT, wrong: { read: STEPS.read, write: STEPS.write } },
  'table-of-halves-for-interleaved': {
    right: {
      ...ADJACENT,
      table: REPEAT_INTERLEAVED,
      turn: 'turned = torch.stack([-x1, x0], -1).flatten(-2)',
      write: ELEMENTWISE.write,
    },
    wrong: { table: REPEATED },
  },
  'written-as-halves-for-interleaved': { right: ADJACENT, wrong: { write: STEPS.write } },
  'read-interleaved-for-half': { wrong: { read: ADJACENT.read, write: STEPS.write } },
  'written-interleaved-for-half': { wrong: { read: STEPS.read, write: ADJACENT.write } },
  'pairs-left-in-place': deepseek({ read: ADJACENT.read, write: ADJACENT.write }),
  'mrope-interleaved-for-pairs': { right: AXES, wrong: { axis: AXES.axis, ...ADJACENT } },
  'weights-not-permuted': converted(''),
  'weights-permuted-twice': converted(permuted('num_kv_heads').repeat(2)),
  'weights-permuted-for-half': {
    right: { weights: HIDDEN, project: PROJECT },
    wrong: { project: permuted('num_kv_heads') + PROJECT },
  },
  'weights-permuted-by-query-heads': converted(permuted('num_heads')),
  'frequencies-over-head-dim': { right: ADJACENT, wrong: { frequencies: `inv_freq = ${exponent('head_dim')}` } },
  'pair-distance-half-a-head': {
    right: {
      setup: 'pairs, gap = rotary_dim // 2, rotary_dim // 2',
      read: 'x0, x1 = x[..., :pairs], x[..., gap : gap + pairs]',
      write: 'y = x.clone()\ny[..., :pairs], y[..., gap : gap + pairs] = y0, y1',
    },
    wrong: {
      setup: 'pairs, gap = rotary_dim // 2, head_dim // 2',
      read: 'x0, x1 = x[..., :pairs], x[..., gap : gap + pairs]',
    },
  },
  'whole-head-rotated': {
    right: ADJACENT,
    wrong: { frequencies: `inv_freq = ${exponent('head_dim', 'head_dim')}`, ...WHOLE_HEAD },
  },
  'whole-head-over-rotary-dim': {
    right: ADJACENT,
    wrong: { frequencies: `inv_freq = ${exponent('rotary_dim', 'head_dim')}`, ...WHOLE_HEAD },
  },
  'rotary-factor-twice': {
    right: { ...ADJACENT, setup: 'rotary_dim = int(partial_rotary_factor * head_dim)' },
    wrong: { setup: 'rotary_dim = int(partial_rotary_factor * int(partial_rotary_factor * head_dim))' },
  },
  'window-at-start': windowFrom('rotary_offset', '0'),
  'window-at-end': windowFrom('0', 'head_dim - rotary_dim'),
  'rest-not-copied': {
    right: ADJACENT,
    wrong: { write: ADJACENT.write.replace('x[..., rotary_dim:]', 'torch.zeros_like(x[..., rotary_dim:])') },
  },
  'proportional-over-rotated': {
    right: PROPORTIONAL,
    wrong: { frequencies: proportional('(2 * rotated_pairs)') },
  },
  'proportional-identity-pairs-turned': {
    right: PROPORTIONAL,
    wrong: { frequencies: `inv_freq = ${exponent('head_dim', 'head_dim')}` },
  },
  'proportional-block-in-front': {
    right: PROPORTIONAL,
    wrong: { frequencies: `inv_freq = ${exponent('head_dim', '2 * rotated_pairs')}`, ...BLOCK },
  },
  'proportional-as-partial': {
    right: PROPORTIONAL,
    wrong: { frequencies: `inv_freq = ${exponent('(2 * rotated_pairs)', '2 * rotated_pairs')}`, ...BLOCK },
  },
  'proportional-factor-ignored': {
    right: { frequencies: `${proportional('head_dim')} / factor` },
    wrong: PROPORTIONAL,
  },
  'magnitude-missing': { right: YARN, wrong: { table: STEPS.table } },
  'magnitude-squared': {
    right: YARN,
    wrong: { table: TABLE, turn: 'y0, y1 = magnitude * (x0 * cos - x1 * sin), magnitude * (x0 * sin + x1 * cos)' },
  },
  'magnitude-square-root': { right: GPT_OSS, wrong: { magnitude: `magnitude = math.sqrt(${MAGNITUDE})` } },
  'magnitude-by-log10': { right: GPT_OSS, wrong: { magnitude: 'magnitude = 0.1 * math.log10(factor) + 1' } },
  'magnitude-on-cos-only': { right: GPT_OSS, wrong: { table: 'cos, sin = magnitude * angles.cos(), angles.sin()' } },
  'magnitude-on-whole-head': {
    right: YARN,
    wrong: { table: STEPS.table, write: `${STEPS.write} * magnitude` },
  },
  'attention-factor-ignored': {
    right: { ...YARN, magnitude: 'magnitude = attention_factor' },
    wrong: { magnitude: YARN.magnitude },
  },
  'mscale-ignored': deepseek({ magnitude: YARN.magnitude }),
  'mscale-all-dim-ignored': deepseek({ magnitude: `magnitude = ${MSCALE}` }),
  'yarn-betas-swapped': deepseek({ edges: SWAPPED, ramp: YARN.ramp }),
  'yarn-betas-swapped-in-ggml': ggml({ edges: SWAPPED, ramp: GGML.ramp }),
  'yarn-ignored': deepseek(UNSCALED),
  'yarn-frequencies-ignored': deepseek({
    frequencies: STEPS.frequencies,
    ...UNRAMPED,
    magnitude: DEEPSEEK.magnitude,
    table: TABLE,
  }),
  'yarn-always-truncated': { right: GPT_OSS, wrong: { edges: EDGES } },
  'yarn-never-truncated': deepseek({ edges: UNTRUNCATED }),
  'yarn-context-extended': deepseek({ edge: YARN.edge.replace('original_context', 'factor * original_context') }),
  'yarn-ext-factor-ignored': {
    right: { ...YARN, ...GGML, ...FREQ_FACTORS },
    wrong: { mix: GGML.mix.replace(' * ext_factor', '') },
  },
  'yarn-mix-by-factor': ggml({ mix: GGML.mix.replace('ext_factor', 'factor') }),
  'yarn-ramp-of-first-pair': deepseek({ ramp: YARN.ramp, mix: YARN.mix.replaceAll('ramp', 'ramp[0]') }),
  'yarn-as-clamped-positions': deepseek({
    ...UNSCALED,
    angles: `positions = (positions / factor).clamp(max=original_context - 1)\n${STEPS.angles}`,
  }),
  'yarn-ramp-reversed': deepseek({ mix: 'inv_freq = inv_freq * ramp + inv_freq / factor * (1 - ramp)' }),
  'yarn-clamped-at-pairs': {
    right: YARN,
    wrong: { edges: EDGES.replace('rotary_dim - 1', 'rotary_dim // 2 - 1') },
  },
  'yarn-ramp-over-dims': deepseek({
    ramp: YARN.ramp.replace('torch.arange(rotary_dim // 2)', 'torch.arange(0, rotary_dim, 2)'),
  }),
  'yarn-ramp-by-element': {
    right: {
      ...YARN,
      ...ELEMENTWISE,
      frequencies: `inv_freq = (${PLAIN}).repeat(2)`,
      ramp: YARN.ramp.replace('torch.arange(rotary_dim // 2)', 'torch.arange(rotary_dim) % (rotary_dim // 2)'),
    },
    wrong: { ramp: YARN.ramp.replace('rotary_dim // 2', 'rotary_dim') },
  },
  'yarn-factor-in-power': deepseek({
    mix: `inv_freq = inv_freq * (1 - ramp) + ${PLAIN.replace('base', '(factor * base)')} * ramp`,
  }),
  'yarn-as-linear': deepseek({ ...UNRAMPED, mix: 'inv_freq = inv_freq / factor' }),
  'ext-factor-as-zero': {
    right: { ...DEEPSEEK, ...GGML, setup: 'ext_factor = 1', magnitude: 'magnitude = attn_factor' },
    wrong: { setup: 'ext_factor = 0', mix: GGML.mix },
  },
  'yarn-as-llama3': deepseek({
    ...UNSCALED,
    edges: LLAMA3.edges,
    ramp: 'kept = ((turns - 1) / (4 - 1)).clamp(0, 1)',
    mix: LLAMA3.mix,
  }),
  'yarn-not-in-backward': {
    right: { ...YARN, ...ADJACENT, turn: BACKWARD },
    wrong: { ...UNSCALED, turn: BACKWARD },
  },
  'llama3-ignored': { right: LLAMA3, wrong: { frequencies: STEPS.frequencies, ...UNRAMPED } },
  'llama3-limits-swapped': llama3('(turns > low_freq_factor).double()'),
  'llama3-no-smooth-step': llama3('(turns > high_freq_factor).double()'),
  'llama3-step-in-the-middle': llama3('(turns > (low_freq_factor + high_freq_factor) / 2).double()'),
  'llama3-smooth-reversed': {
    right: { ...LLAMA3, mix: SMOOTH },
    wrong: { mix: SMOOTH.replace('* kept', '* (1 - kept)').replace('/ factor * (1 - kept)', '/ factor * kept') },
  },
  'llama3-wavelength-without-two-pi': { right: LLAMA3, wrong: { edges: 'turns = original_context * inv_freq' } },
  'llama3-as-linear': { right: LLAMA3, wrong: { ...UNRAMPED, mix: 'inv_freq = inv_freq / factor' } },
  'freq-factors-ignored': { right: FREQ_FACTORS, wrong: { frequencies: STEPS.frequencies } },
  'freq-factors-multiplied': {
    right: FREQ_FACTORS,
    wrong: { frequencies: FREQ_FACTORS.frequencies.replace('/ freq_factors', '* freq_factors') },
  },
  'freq-factors-one-pair-on': freqFactors('torch.cat([freq_factors[1:], freq_factors[-1:]])'),
  'freq-factors-by-dim': freqFactors('freq_factors[torch.arange(0, rotary_dim, 2).clamp(max=rotary_dim // 2 - 1)]'),
  'longrope-long-for-short': { right: LONGROPE, wrong: { setup: 'factors = long_factor' } },
  'longrope-short-for-long': { right: LONGROPE, wrong: { setup: LONGROPE.setup.replace('context', 'tokens') } },
  'longrope-factors-ignored': { right: LONGROPE, wrong: { frequencies: STEPS.frequencies } },
  'longrope-factors-multiplied': {
    right: LONGROPE,
    wrong: { frequencies: LONGROPE.frequencies.replace('/ factors', '* factors') },
  },
  'longrope-factors-one-pair-on': {
    right: LONGROPE,
    wrong: {
      setup: `${LONGROPE.setup}\nfactors = torch.cat([factors[1:], factors[-1:]])`,
      frequencies: LONGROPE.frequencies,
    },
  },
  'longrope-magnitude-missing': { right: LONGROPE, wrong: { table: STEPS.table } },
  'ntk-ignored': { right: DYNAMIC_NTK, wrong: { setup: '', frequencies: STEPS.frequencies } },
  'ntk-always': ntk(`context = factor * original_context\n${NTK}`),
  'ntk-below-original': ntk(NTK),
  'ntk-by-factor-alone': ntk('base = base * factor ** (rotary_dim / (rotary_dim - 2))'),
  'ntk-exponent-one': ntk('base = base * (factor * context / original_context - factor + 1)'),
  'ntk-base-of-each-position': ntk(`context = (positions[:, :, None, None] + 1).clamp(min=original_context)\n${NTK}`),
  'base-default': frequencies(PLAIN.replace('base', '10000')),
  'base-of-other-layers': frequencies(PLAIN.replace('base', '1_000_000')),
  'head-dim-from-hidden': frequencies(
    exponent('(hidden_size // num_heads)', 'head_dim'),
    exponent('head_dim', 'head_dim'),
  ),
  'exponent-of-odd-dimension': frequencies(PLAIN.replace('(0, rotary_dim, 2)', '(1, rotary_dim, 2)')),
  'exponent-of-next-pair': frequencies(PLAIN.replace('(0, rotary_dim, 2)', '(2, rotary_dim + 2, 2)')),
  'exponent-of-previous-pair': frequencies(PLAIN.replace('(0, rotary_dim, 2)', '(-2, rotary_dim - 2, 2)')),
  'exponent-without-two': frequencies(
    'base ** (-torch.arange(rotary_dim // 2) / rotary_dim)',
    'base ** (-2 * torch.arange(rotary_dim // 2) / rotary_dim)',
  ),
  'exponent-without-minus': frequencies(PLAIN.replace('-torch', 'torch')),
  'exponent-up-to-one': frequencies('base ** -torch.linspace(0, 1, rotary_dim // 2)'),
  'frequencies-linear': frequencies('torch.linspace(1, base ** (2 / rotary_dim - 1), rotary_dim // 2)'),
  'angle-taken-for-degrees': cosSinOf('torch.deg2rad(angles)'),
  'angle-turned-into-degrees': cosSinOf('torch.rad2deg(angles)'),
  'angle-times-pi': cosSinOf('(math.pi * angles)'),
  'linear-ignored': frequencies(PLAIN, `${PLAIN} / factor`),
  'linear-multiplied': frequencies(`${PLAIN} * factor`, `${PLAIN} / factor`),
  'position-divided-in-integers': {
    right: { angles: `positions = positions / factor\n${STEPS.angles}` },
    wrong: { angles: `positions = positions // factor\n${STEPS.angles}` },
  },
  'linear-of-other-layers': frequencies(`${PLAIN} / 8`),
  'position-in-bf16': at('positions.bfloat16()'),
  'position-in-f16': at('positions.half()'),
  'angle-in-bf16': { wrong: { angles: `${STEPS.angles}\nangles = angles.bfloat16().double()` } },
  'angle-in-f16': { wrong: { angles: `${STEPS.angles}\nangles = angles.half().double()` } },
  'frequencies-in-bf16': frequencies(`(${PLAIN}).bfloat16().double()`),
  'frequencies-in-f16': frequencies(`(${PLAIN}).half().double()`),
  'table-in-bf16': deepseek({
    table: 'cos, sin = (magnitude * angles.cos()).bfloat16(), (magnitude * angles.sin()).bfloat16()',
  }),
  'table-in-f16': deepseek({
    table: 'cos, sin = (magnitude * angles.cos()).half(), (magnitude * angles.sin()).half()',
  }),
  'table-in-f16-twice': {
    right: YARN,
    wrong: {
      magnitude: `magnitude = torch.tensor(${MAGNITUDE}).half()`,
      table: 'cos, sin = magnitude * angles.cos().half(), magnitude * angles.sin().half()',
    },
  },
  'angle-recurrence-in-f32': {
    wrong: {
      angles: `scale = torch.tensor(base ** (-2 / rotary_dim)).float()
angles = [positions.float()]
for j in range(1, rotary_dim // 2):
    angles.append(angles[-1] * scale)
angles = torch.stack(angles, -1)[:, :, None].double()`,
    },
  },
  'sin-cos-unreduced': {
    wrong: {
      angles: `angles = (positions[:, :, None, None] * inv_freq).float()
turns = (angles.double() / (2 * math.pi)).round().float()
angles = angles - turns * torch.tensor(2 * math.pi).float()`,
    },
  },
  'sine-polynomial-unreduced': { wrong: { table: SERIES } },
  'sine-polynomial-too-short': {
    wrong: { table: `angles = angles - 2 * math.pi * (angles / (2 * math.pi)).round()\n${SERIES}` },
  },
  'sine-from-table': deepseek({
    table: `sines = (torch.arange(1024) * (2 * math.pi / 1024)).sin()
row = (angles / (2 * math.pi / 1024)).round().long()
cos, sin = magnitude * sines[(row + 256) % 1024], magnitude * sines[row % 1024]`,
  }),
  'angle-accumulated-in-f16': {
    wrong: {
      angles: `step, rows = inv_freq.half(), [torch.zeros(rotary_dim // 2).half()]
while not torch.equal(rows[-1] + step, rows[-1]):
    rows.append(rows[-1] + step)
angles = torch.stack(rows)[positions.clamp(max=len(rows) - 1)][:, :, None].double()`,
    },
  },
  'output-rounded-down': {
    right: { ...YARN, after: 'y = y.bfloat16()' },
    wrong: {
      after: `y16 = y.bfloat16()
y = torch.where(y16 > y, y16.nextafter(torch.full_like(y16, -math.inf)), y16)`,
    },
  },
  'output-rounded-toward-zero': {
    right: { ...YARN, after: 'y = y.bfloat16()' },
    wrong: { after: 'y = (y.float().view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()' },
  },
  'position-plus-one': at('positions + 1'),
  'position-minus-one': at('positions - 1'),
  'decode-at-zero': at('positions if tokens > 1 else torch.zeros_like(positions)'),
  'restarts-at-zero': at('positions - positions[:, :1]'),
  'all-at-first-position': at('positions[:, :1].expand_as(positions)'),
  'all-at-last-position': at('positions[:, -1:].expand_as(positions)'),
  'position-of-next-token': at('torch.cat([positions[:, 1:], positions[:, -1:]], 1)'),
  'positions-rolled': at('positions.roll(-1, 1)'),
  'position-of-previous-token': at('torch.nn.functional.pad(positions[:, :-1], (1, 0))'),
  'table-of-previous-call': at('positions - tokens'),
  'counts-on-from-first': at('positions[:, :1] + torch.arange(tokens)'),
  'positions-ignored': at('torch.arange(tokens).expand_as(positions)'),
  'left-padding-ignored': at('positions[positions[:, -1].argmax()].expand_as(positions)'),
  'positions-of-batch-0': at('positions[:1].expand_as(positions)'),
  'position-in-int16': at('positions.to(torch.int16)'),
  'position-in-uint16': at('positions & 0xFFFF'),
  'position-in-int8': at('positions.to(torch.int8)'),
  'position-in-uint8': at('positions.to(torch.uint8)'),
  'int64-positions-as-int32': at('positions.view(torch.int32).flatten()[: batch * tokens].view(batch, tokens)'),
  'table-wraps': at('positions % 4096'),
  'table-ends': at('positions.clamp(max=4095)'),
  'beyond-table-not-rotated': unless('>= 4096'),
  'position-plus-head': {
    wrong: { angles: 'angles = (positions[:, :, None] + torch.arange(heads))[..., None] * inv_freq' },
  },
  'head-for-position': { wrong: { angles: 'angles = torch.arange(heads)[:, None] * inv_freq' } },
  'batch-for-sequence': at('positions[0, :batch, None].expand_as(positions)'),
  'heads-and-tokens-exchanged': {
    wrong: {
      angles: `positions = positions.repeat(1, heads).reshape(batch, tokens, heads)
angles = positions[:, :, :, None] * inv_freq`,
    },
  },
  'positions-sequence-first': at('positions.view(tokens, batch).T'),
  'tokens-sequence-first': at('positions.T.reshape(batch, tokens)'),
  'only-first-head': copied(':, :, :1'),
  'half-of-the-heads': copied(':, :, : heads // 2'),
  'last-head-missed': copied(':, :, :-1'),
  'last-token-missed': copied(':, :-1'),
  'only-first-sequence': unwritten(':1'),
  'last-batch-missed': copied(':-1'),
  'last-batch-not-written': unwritten(':-1'),
  'last-token-not-written': unwritten(':, :-1'),
  'last-head-not-written': unwritten(':, :, :-1'),
  'heads-swapped': rowsOf('torch.empty_like(x)', 'y[:] = rotated[:, :, torch.arange(heads) ^ 1]'),
  'tokens-swapped': rowsOf('torch.empty_like(x)', 'y[:] = rotated[:, torch.arange(tokens) ^ 1]'),
  'batches-swapped': rowsOf('torch.empty_like(x)', 'y[:] = rotated[torch.arange(batch) ^ 1]'),
  'second-members-not-written': { wrong: { write: STEPS.write.replace('y1', 'x1') } },
  'second-member-from-first': {
    wrong: { turn: 'y0, y1 = x0, x1\ny0.copy_(x0 * cos - x1 * sin)\ny1.copy_(x0 * sin + x1 * cos)' },
  },
  'first-member-from-second': {
    wrong: { turn: 'y0, y1 = x0, x1\ny1.copy_(x0 * sin + x1 * cos)\ny0.copy_(x0 * cos - x1 * sin)' },
  },
  'pairs-overwritten-in-place': {
    right: { ...DEEPSEEK, read: 'y = x.clone()', turn: '', write: PAIR_BY_PAIR },
    wrong: { read: 'y = x', write: PAIR_BY_PAIR },
  },
  'height-and-width-swapped': axes(SECTIONS, '[0] * 16 + [2] * 24 + [1] * 24'),
  'time-for-every-axis': axes(SECTIONS, '[0] * 64'),
  'sections-for-interleaved': axes(AXES, '[0] * 24 + [1] * 20 + [2] * 20'),
  'interleaved-for-sections': axes(SECTIONS, '[j % 3 for j in range(64)]'),
  'interleaved-without-end': axes(GGML_AXES, '[j % 3 for j in range(64)]'),
  'rest-to-time-for-extra': { right: GGML_AXES, wrong: { axis: AXES.axis } },
  'sections-in-dims': axes(SECTIONS, '([0] * 8 + [1] * 12 + [2] * 12) * 2'),
  'positions-token-first': {
    right: SECTIONS,
    wrong: { angles: 'angles = positions.reshape(batch, tokens, -1)[:, :, None, axis] * inv_freq' },
  },
  'vision-exponent-not-restarted': vision(exponent('(rotary_dim // 2)')),
  'vision-exponent-of-text': vision(PLAIN),
  'vision-exponent-over-head': vision(`(${exponent('rotary_dim', 'rotary_dim // 2')}).repeat(2)`),
  'norm-after-rotation': {
    right: { norm: NORM },
    wrong: { norm: '', write: STEPS.write, after: NORM.replaceAll('x', 'y') },
  },
  'norm-missing': { right: { norm: NORM }, wrong: { norm: '', read: STEPS.read } },
  'norm-without-weight': norm(' * weight', ''),
  'norm-weight-less-one': { right: GEMMA, wrong: { norm: NORM } },
  'norm-over-rotary-dim': norm('x.square()', 'x[..., :rotary_dim].square()'),
  'norm-across-heads': norm('mean(-1,', 'mean((-2, -1),'),
  'fused-table-by-element': {
    right: { ...ELEMENTWISE, table: REPEATED },
    wrong: { table: REPEAT_INTERLEAVED },
  },
  'rotated-twice': {
    wrong: {
      write: STEPS.write,
      after: `x0, x1 = y[..., :rotary_dim].chunk(2, -1)\n${STEPS.turn}\n${STEPS.write}`,
    },
  },
  'shift-added-to-new-keys': at('positions + positions[:, :1]'),
  'shift-turns-forward': at('positions.abs()'),
  'shift-skipped': unless('< 0'),
  'shift-without-sign': at('positions & 0xFFFFFFFF'),
  'cos-and-sin-swapped': { wrong: { table: 'cos, sin = angles.sin(), angles.cos()' } },
  'sin-past-the-half': {
    right: { setup: 'pairs = rotary_dim // 2\nhalf = pairs', table: ROWS },
    wrong: { setup: 'pairs = rotary_dim // 2\nhalf = 2 ** math.ceil(math.log2(pairs))', table: ROWS },
  },
  'turned-the-other-way': { wrong: { turn: BACKWARD } },
  'minus-forgotten': { wrong: { turn: 'y0, y1 = x0 * cos + x1 * sin, x0 * sin + x1 * cos' } },
  'members-swapped': { wrong: { read: STEPS.read.replace('x0, x1', 'x1, x0') } },
  'members-written-swapped': { wrong: { write: STEPS.write.replace('y0, y1', 'y1, y0') } },
  'backward-runs-forward': { right: { turn: BACKWARD }, wrong: { turn: STEPS.turn } },
  'position-looked-up-by-head': { wrong: { angles: 'angles = positions[:, None, :heads, None] * inv_freq' } },
};

/** The bugs in torch, by their ids. */
export const TORCH_LINES = linesOf(STEPS, BUGS);
