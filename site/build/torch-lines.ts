/**
 * The lines that a bug has wrong, and the right ones, in torch. They are steps of one small kernel:
 * test/site/torch-lines.python.test.ts runs it with each line on the bug's own vector.
 *
 * @module
 */

/** The steps of the kernel in their order, as a model of plain RoPE has them. */
const STEPS = {
  window: '',
  frequencies: 'inv_freq = base ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)',
  edges: '',
  ramp: '',
  axis: '',
  angles: 'angles = positions[:, :, None, None] * inv_freq',
  magnitude: '',
  table: 'cos, sin = angles.cos(), angles.sin()',
  norm: '',
  read: 'x0, x1 = x[..., :rotary_dim].chunk(2, -1)',
  turn: 'y0, y1 = x0 * cos - x1 * sin, x0 * sin + x1 * cos',
  write: 'y = torch.cat([y0, y1, x[..., rotary_dim:]], -1)',
  after: '',
};
type Step = keyof typeof STEPS;
type Lines = { readonly [S in Step]?: string };

/** The steps of pairs (2j, 2j + 1) that differ from those of halves. */
const ADJACENT = {
  read: 'x0, x1 = x[..., :rotary_dim].unflatten(-1, (-1, 2)).unbind(-1)',
  write: 'y = torch.cat([torch.stack([y0, y1], -1).flatten(-2), x[..., rotary_dim:]], -1)',
};

/** The lines of a bug. Steps that `right` leaves out are those of {@link STEPS}. */
interface Bug {
  readonly right?: Lines;
  readonly wrong: Lines;
}

const exponent = (over: string, to = 'rotary_dim'): string => `base ** (-torch.arange(0, ${to}, 2) / ${over})`;
const PLAIN = exponent('rotary_dim');
const frequencies = (right: string, wrong: string): Bug => ({
  right: { frequencies: `inv_freq = ${right}` },
  wrong: { frequencies: `inv_freq = ${wrong}` },
});
const at = (positions: string): Bug => ({ wrong: { angles: `angles = ${positions}[:, :, None, None] * inv_freq` } });

const WHOLE_HEAD = {
  read: 'x0, x1 = x.unflatten(-1, (-1, 2)).unbind(-1)',
  write: 'y = torch.stack([y0, y1], -1).flatten(-2)',
};
const EDGE = `def edge(turns):
    return rotary_dim * math.log(original_context / (2 * math.pi * turns)) / (2 * math.log(base))`;
const TRUNCATED = 'low, high = max(math.floor(edge(32)), 0), min(math.ceil(edge(1)), rotary_dim - 1)';
const UNTRUNCATED = 'low, high = max(edge(32), 0), min(edge(1), rotary_dim - 1)';
const RAMP = `ramp = ((torch.arange(rotary_dim // 2) - low) / (high - low)).clamp(0, 1)
inv_freq = inv_freq * (1 - ramp) + inv_freq / factor * ramp`;
const YARN_MAGNITUDE = 'magnitude = 0.1 * math.log(factor) + 1';
const TABLE = 'cos, sin = magnitude * angles.cos(), magnitude * angles.sin()';
const YARN = [STEPS.frequencies, EDGE, TRUNCATED, RAMP].join('\n');
const yarn = (right: string, wrong: string, magnitude = YARN_MAGNITUDE): Bug => ({
  right: { frequencies: `${STEPS.frequencies}\n${EDGE}`, edges: right, ramp: RAMP, magnitude, table: TABLE },
  wrong: { edges: wrong },
});
const NTK = 'base = base * (factor * context / original_context - factor + 1) ** (rotary_dim / (rotary_dim - 2))';
const LONGROPE = '(long_factor if context > original_context else short_factor)';
const longrope = (wrong: string): Bug => ({
  right: {
    frequencies: `inv_freq = ${PLAIN} / ${LONGROPE}`,
    magnitude: 'magnitude = math.sqrt(1 + math.log(factor) / math.log(original_context))',
    table: TABLE,
  },
  wrong: { frequencies: `inv_freq = ${wrong}` },
});
const axes = (right: string, wrong: string): Bug => ({
  right: {
    axis: `axis = torch.tensor(${right})`,
    angles: 'angles = positions[axis].permute(1, 2, 0)[:, :, None] * inv_freq',
  },
  wrong: { axis: `axis = torch.tensor(${wrong})` },
});
const NORM = (of: string): string =>
  `${of} = ${of} * torch.rsqrt(${of}.square().mean(-1, keepdim=True) + eps) * weight`;

const BUGS: Readonly<Record<string, Bug>> = {
  'pairs-interleaved-for-half': { wrong: ADJACENT },
  'pairs-half-for-interleaved': { right: ADJACENT, wrong: { read: STEPS.read, write: STEPS.write } },
  'written-as-halves-for-interleaved': { right: ADJACENT, wrong: { write: STEPS.write } },
  'table-of-halves-for-interleaved': {
    right: {
      ...ADJACENT,
      table: 'cos, sin = (f(angles).repeat_interleave(2, -1) for f in (torch.cos, torch.sin))',
      turn: 'turned = torch.stack([-x1, x0], -1).flatten(-2)',
      write: 'y = torch.cat([x[..., :rotary_dim] * cos + turned * sin, x[..., rotary_dim:]], -1)',
    },
    wrong: { table: 'cos, sin = (f(angles).repeat(1, 1, 1, 2) for f in (torch.cos, torch.sin))' },
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
    right: { ...ADJACENT, window: 'rotary_dim = int(partial_rotary_factor * head_dim)' },
    wrong: { window: 'rotary_dim = int(partial_rotary_factor * int(partial_rotary_factor * head_dim))' },
  },
  'rest-not-copied': {
    right: ADJACENT,
    wrong: { write: ADJACENT.write.replace('x[..., rotary_dim:]', 'torch.zeros_like(x[..., rotary_dim:])') },
  },
  'proportional-block-in-front': {
    right: {
      frequencies: `inv_freq = torch.zeros(head_dim // 2)\ninv_freq[:rotated_pairs] = ${exponent('head_dim', '2 * rotated_pairs')}`,
    },
    wrong: {
      frequencies: `inv_freq = ${exponent('head_dim', '2 * rotated_pairs')}`,
      read: 'x0, x1 = x[..., : 2 * rotated_pairs].chunk(2, -1)',
      write: 'y = torch.cat([y0, y1, x[..., 2 * rotated_pairs :]], -1)',
    },
  },
  'magnitude-missing': {
    right: { frequencies: YARN, magnitude: YARN_MAGNITUDE, table: TABLE },
    wrong: { table: STEPS.table },
  },
  'magnitude-squared': {
    right: { frequencies: YARN, magnitude: YARN_MAGNITUDE, table: TABLE },
    wrong: { turn: 'y0, y1 = magnitude * (x0 * cos - x1 * sin), magnitude * (x0 * sin + x1 * cos)' },
  },
  'attention-factor-ignored': {
    right: { frequencies: YARN, magnitude: 'magnitude = attention_factor', table: TABLE },
    wrong: { magnitude: YARN_MAGNITUDE },
  },
  'mscale-ignored': {
    right: {
      frequencies: YARN,
      read: ADJACENT.read,
      magnitude: 'magnitude = (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all_dim * math.log(factor) + 1)',
      table: TABLE,
    },
    wrong: { magnitude: YARN_MAGNITUDE },
  },
  'yarn-ignored': {
    right: { read: ADJACENT.read, frequencies: YARN },
    wrong: { frequencies: STEPS.frequencies },
  },
  'yarn-always-truncated': yarn(UNTRUNCATED, TRUNCATED),
  'yarn-never-truncated': {
    ...yarn(TRUNCATED, UNTRUNCATED),
    right: { ...yarn(TRUNCATED, '', 'magnitude = 1').right, read: ADJACENT.read },
  },
  'yarn-clamped-at-pairs': yarn(TRUNCATED, TRUNCATED.replace('rotary_dim - 1', 'rotary_dim // 2 - 1')),
  'llama3-ignored': {
    right: {
      frequencies: `${STEPS.frequencies}
turns = original_context * inv_freq / (2 * math.pi)
kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
inv_freq = inv_freq * (kept + (1 - kept) / factor)`,
    },
    wrong: { frequencies: STEPS.frequencies },
  },
  'freq-factors-ignored': {
    right: { ...ADJACENT, frequencies: `inv_freq = ${PLAIN} / freq_factors` },
    wrong: { frequencies: STEPS.frequencies },
  },
  'longrope-long-for-short': longrope(`${PLAIN} / long_factor`),
  'longrope-factors-multiplied': longrope(`${PLAIN} * ${LONGROPE}`),
  'ntk-base-of-each-position': {
    right: { frequencies: `${NTK}\n${STEPS.frequencies}` },
    wrong: {
      frequencies: `context = (positions[:, :, None, None] + 1).clamp(min=original_context)\n${NTK}\n${STEPS.frequencies}`,
    },
  },
  'ntk-always': {
    right: { frequencies: `${NTK}\n${STEPS.frequencies}` },
    wrong: { frequencies: `context = factor * original_context\n${NTK}\n${STEPS.frequencies}` },
  },
  'base-default': frequencies(PLAIN, PLAIN.replace('base', '10000')),
  'base-of-other-layers': frequencies(PLAIN, PLAIN.replace('base', '1_000_000')),
  'head-dim-from-hidden': frequencies(
    exponent('head_dim', 'head_dim'),
    exponent('(hidden_size // num_heads)', 'head_dim'),
  ),
  'linear-ignored': frequencies(`${PLAIN} / factor`, PLAIN),
  'exponent-without-two': frequencies(
    'base ** (-2 * torch.arange(rotary_dim // 2) / rotary_dim)',
    'base ** (-torch.arange(rotary_dim // 2) / rotary_dim)',
  ),
  'frequencies-in-bf16': frequencies(PLAIN, `(${PLAIN}).bfloat16().double()`),
  'frequencies-in-f16': frequencies(PLAIN, `(${PLAIN}).half().double()`),
  'position-in-bf16': at('positions.bfloat16()'),
  'angle-in-bf16': {
    wrong: { angles: 'angles = (positions[:, :, None, None] * inv_freq).bfloat16().double()' },
  },
  'table-in-bf16': {
    right: { read: ADJACENT.read, frequencies: YARN },
    wrong: { table: 'cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()' },
  },
  'sin-cos-unreduced': {
    wrong: {
      angles: `angles = (positions[:, :, None, None] * inv_freq).float()
turns = (angles.double() / (2 * math.pi)).round().float()
angles = angles - turns * torch.tensor(2 * math.pi, dtype=torch.float32)`,
    },
  },
  'sine-polynomial-unreduced': {
    wrong: {
      table: `q = angles**2
cos = 1 - q / 2 + q**2 / 24 - q**3 / 720
sin = angles * (1 - q / 6 + q**2 / 120 - q**3 / 5040)`,
    },
  },
  'position-plus-one': at('(positions + 1)'),
  'position-minus-one': at('(positions - 1)'),
  'restarts-at-zero': at('(positions - positions[:, :1])'),
  'table-of-previous-call': at('(positions - positions.shape[1])'),
  'positions-ignored': at('torch.arange(positions.shape[1]).expand_as(positions)'),
  'positions-of-batch-0': at('positions[:1].expand_as(positions)'),
  'all-at-first-position': at('positions[:, :1].expand_as(positions)'),
  'all-at-last-position': at('positions[:, -1:].expand_as(positions)'),
  'tokens-sequence-first': at('positions.T.reshape(positions.shape)'),
  'heads-and-tokens-exchanged': {
    wrong: {
      angles: `positions = positions.repeat(1, heads).reshape(batch, tokens, heads)
angles = positions[:, :, :, None] * inv_freq`,
    },
  },
  'beyond-table-not-rotated': {
    wrong: { write: `${STEPS.write}\ny = torch.where(positions[:, :, None, None] < 4096, y, x)` },
  },
  'only-first-sequence': { wrong: { write: `y = torch.zeros_like(x)\ny[:1] = ${STEPS.write.slice(4)}[:1]` } },
  'height-and-width-swapped': axes('[0] * 16 + [1] * 24 + [2] * 24', '[0] * 16 + [2] * 24 + [1] * 24'),
  'sections-for-interleaved': axes('[j % 3 if j < 60 else 0 for j in range(64)]', '[0] * 24 + [1] * 20 + [2] * 20'),
  'norm-after-rotation': {
    right: { norm: NORM('x') },
    wrong: { norm: '', write: STEPS.write, after: NORM('y') },
  },
  'rotated-twice': {
    wrong: {
      write: STEPS.write,
      after: `x0, x1 = y[..., :rotary_dim].chunk(2, -1)\n${STEPS.turn}\n${STEPS.write}`,
    },
  },
  'cos-and-sin-swapped': { wrong: { table: 'cos, sin = angles.sin(), angles.cos()' } },
  'backward-runs-forward': {
    right: { turn: 'y0, y1 = x0 * cos + x1 * sin, x1 * cos - x0 * sin' },
    wrong: { turn: STEPS.turn },
  },
  'turned-the-other-way': { wrong: { turn: 'y0, y1 = x0 * cos + x1 * sin, x1 * cos - x0 * sin' } },
  'minus-forgotten': { wrong: { turn: 'y0, y1 = x0 * cos + x1 * sin, x0 * sin + x1 * cos' } },
};

/** A bug in torch. */
export interface TorchLines {
  /** The steps that differ, one after the other. */
  readonly right: string;
  readonly wrong: string;
  /** The whole kernel, from `x` and `positions` to `y`. */
  readonly programs: { readonly right: string; readonly wrong: string };
}

const joined = (lines: Lines, names: readonly Step[]): string => names.flatMap((name) => lines[name] || []).join('\n');

/** The bugs that have lines in torch, by their ids. */
export const TORCH_LINES: ReadonlyMap<string, TorchLines> = new Map(
  Object.entries(BUGS).map(([id, bug]) => {
    const all = Object.keys(STEPS) as Step[];
    const names = all.filter((name) => bug.wrong[name] !== undefined);
    const right = { ...STEPS, ...bug.right };
    const wrong = { ...right, ...bug.wrong };
    const programs = { right: joined(right, all), wrong: joined(wrong, all) };
    return [id, { right: joined(right, names), wrong: joined(wrong, names), programs }];
  }),
);
