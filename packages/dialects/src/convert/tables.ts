/**
 * The peers that rotate by tables: ONNX, ONNX Runtime, InfiniOp, aclnn. A record becomes tables, and tables give a record.
 *
 * @module
 * @see onnx/onnx@f754691 RotaryEmbedding-23; microsoft/onnxruntime@0941ecb contrib_ops/cpu/bert/rotary_embedding.cc;
 * InfiniTensor/InfiniCore@2cec6ce6 include/infiniop/ops/rope.h; CANN aclnnRotaryPositionEmbedding
 */

import { planRope, type RopeSpec, type RopeTable } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { ACLNN_ROTARY_MODE } from '../cann/tables.js';
import { INFINIOP_ROPE_ALGO_GPT_J, INFINIOP_ROPE_ALGO_GPT_NEOX } from '../infiniop.js';
import { type EffectiveRope, effectiveRope, type Frame, specFromFrequencies } from './effective.js';
import type { ConvertOptions, Draft, FormTable, GivenTable, Peer } from './form.js';
import { cannot, checkLimits, pairingOf } from './form.js';

/** The tolerance of f32 tables, whose frequencies carry a few roundings of sine and cosine. */
export const TABLE_TOLERANCE = 2 ** -20;
/** Tables that are made for the check only have so many rows. */
const CHECK_ROWS = 64;
/** The largest table has 2 GiB of cosines. */
const MAX_ELEMENTS = 2 ** 29;

/**
 * Makes the table of positions 0 … N − 1, or enough rows to be read back, from float64 angles rounded once to f32. It
 * ignores axes, as rows are positions.
 */
export function tableOf(spec: RopeSpec, options: ConvertOptions): RopeTable {
  const rows = options.positions ?? CHECK_ROWS;
  const { rotaryDim } = effectiveRope(spec);
  const most = Math.floor(MAX_ELEMENTS / rotaryDim);
  if (rows > most) refuse('RANGE', 'convert: --table-len', `at most ${most} rows of ${rotaryDim} values`, rows);
  const pairing = spec.pairing === 'vision' ? 'half' : spec.pairing;
  return planRope({ ...spec, axes: undefined, pairing, positions: 0, seqLen: rows }).table;
}

/** Puts the cosines and then the sines side by side in each row. */
export function joinTables({ rows, pairs, cos, sin }: RopeTable): Float32Array {
  const joined = new Float32Array(rows * pairs * 2);
  for (let r = 0; r < rows; r++) {
    joined.set(cos.subarray(r * pairs, (r + 1) * pairs), r * 2 * pairs);
    joined.set(sin.subarray(r * pairs, (r + 1) * pairs), (2 * r + 1) * pairs);
  }
  return joined;
}

/** The tables of cos and sin from outside. */
export interface GivenTables {
  readonly rows: number;
  readonly pairs: number;
  readonly roundoff: number;
  cos(row: number, pair: number): number;
  sin(row: number, pair: number): number;
}

/** Reads a table whose rows hold cosines, then sines. */
export function splitTable({ shape, data, roundoff }: GivenTable, where: string): GivenTables {
  const [rows = 0, width = 0] = shape;
  if (shape.length !== 2 || width % 2 !== 0 || width === 0) refuse('SHAPE', where, '[max_position, rotary_dim]', shape);
  const pairs = width / 2;
  return { rows, pairs, roundoff, cos: (r, j) => data[r * width + j]!, sin: (r, j) => data[r * width + pairs + j]! };
}

/** Reads two tables with rows of `width`; `place` gives the column of a pair. */
function twoTables(
  [cos, sin]: readonly [GivenTable, GivenTable],
  { rows, pairs, width = pairs }: { rows: number; pairs: number; width?: number },
  place: (pair: number) => number = (j) => j,
): GivenTables {
  const at = (table: GivenTable) => (r: number, j: number) => table.data[r * width + place(j)]!;
  return { rows, pairs, roundoff: Math.max(cos.roundoff, sin.roundoff), cos: at(cos), sin: at(sin) };
}

/**
 * Finds the record of tables whose row p is position p, or refuses those that are no rotation by position.
 *
 * Row 1 gives each frequency up to multiples of 2π; rows 2, 4, 8 … make it more precise. Then every row must agree.
 */
export function specFromTables(frame: Frame, tables: GivenTables, where: string): RopeSpec {
  const { rows, pairs, roundoff } = tables;
  if (rows < 2) refuse('SHAPE', where, 'at least two rows', rows, 'Row 1 holds the frequencies.');
  const magnitude = tables.cos(0, 0);
  const next = 'These tables are no rotation by position, so no record describes them.';
  if (!(Math.abs(magnitude) > 0))
    fail('UNSUPPORTED', where, `cos at position 0 is the magnitude and cannot be ${magnitude}. ${next}`);
  const invFreq = new Float64Array(pairs);
  const slack = 16 * roundoff;
  for (let j = 0; j < pairs; j++) {
    const angle = (row: number): number => Math.atan2(tables.sin(row, j) / magnitude, tables.cos(row, j) / magnitude);
    let frequency = angle(1);
    for (let row = 2; row < rows; row *= 2) {
      const turns = Math.round((row * frequency - angle(row)) / (2 * Math.PI));
      const sharper = (angle(row) + turns * 2 * Math.PI) / row;
      // Small sines of slow pairs are more precise than large angles.
      if (Math.abs(row * frequency) > 1) frequency = sharper;
    }
    invFreq[j] = frequency;
    for (let row = 0; row < rows; row++) {
      // Angles computed in f32 have a rounding error that grows with the angle.
      const bound = slack + Math.abs(row * frequency) * (2 ** -20 + 2 * roundoff);
      if (bound >= 0.5) break;
      const expected = { cos: magnitude * Math.cos(row * frequency), sin: magnitude * Math.sin(row * frequency) };
      for (const part of ['cos', 'sin'] as const) {
        const got = tables[part](row, j);
        if (Math.abs(got - expected[part]) <= bound * Math.abs(magnitude)) continue;
        const wanted = `${expected[part]} from rows 0 and 1`;
        refuse('UNSUPPORTED', `${where}: ${part} of pair ${j} at position ${row}`, wanted, got, next);
      }
    }
  }
  return specFromFrequencies(frame, invFreq, magnitude, 8 * roundoff);
}

const ASK_TABLES = 'Give --table-len N and --out DIR for the tables themselves.';

function pairTables(spec: RopeSpec, options: ConvertOptions, suffix: string): Record<'cos' | 'sin', FormTable> {
  const { rows, pairs, cos, sin } = tableOf(spec, options);
  const table = (name: string, data: RopeTable['cos']): FormTable => ({
    name: `${name}${suffix}`,
    shape: [rows, pairs],
    data: data as Float32Array,
  });
  return { cos: table('cos', cos), sin: table('sin', sin) };
}

function givenTables(form: Fields, tables: ReadonlyMap<string, GivenTable>, suffix: string): [GivenTable, GivenTable] {
  const need = (part: string): GivenTable => {
    const name = `${part}${suffix}`;
    const next = 'convert --table-len N --out DIR writes them.';
    const table = tables.get(name);
    return table ?? refuse('FORMAT', form.path(name), 'the name of a .npy file beside this one', form.raw(name), next);
  };
  const [cos, sin] = [need('cos'), need('sin')];
  if (cos.shape.join() !== sin.shape.join())
    refuse('SHAPE', form.path(`sin${suffix}`), `cos's shape [${cos.shape}]`, sin.shape);
  return [cos, sin];
}

/** Reads the shape of a table of rank 2. */
function rowsOf(table: GivenTable, where: string): [rows: number, columns: number] {
  if (table.shape.length !== 2) refuse('SHAPE', where, '[max_position, rotary_dim / 2]', table.shape);
  return table.shape as unknown as [number, number];
}

// ONNX and ONNX Runtime

const GATHER = 'Gather cos and sin by token and axis, and give them as 3-D caches without position_ids.';
const CONTRIB_AXES =
  'com.microsoft.MRotaryEmbedding takes position_ids [3, batch, seq] and mrope_section (onnxruntime#31728).';

function onnxDrafts(spec: RopeSpec, options: ConvertOptions, peer: 'onnx' | 'onnxruntime'): Draft[] {
  const onnx = peer === 'onnx';
  const { headDim, rotaryDim } = checkLimits(peer, spec, {
    offset: [
      'the node rotates the first rotary_embedding_dim dimensions',
      'Put Split before the node and Concat behind it.',
    ],
    toHalf: 'interleaved',
    even: true,
    axes: [
      'a token has one row of the caches, and this record has several position axes',
      onnx ? GATHER : CONTRIB_AXES,
    ],
  });
  const { heads } = options;
  const rotary_embedding_dim = rotaryDim === headDim ? 0 : rotaryDim;
  const common = { head_size: headDim, interleaved: spec.pairing === 'interleaved' ? 1 : 0, rotary_embedding_dim };
  const notes = onnx
    ? ['Inputs in this order: X, cos_cache, sin_cache, position_ids.']
    : [
        'Inputs in this order: input, position_ids, cos_cache, sin_cache.',
        'scale stays 1: the CPU kernel ignores it; scaling is in the caches.',
      ];
  if (heads === undefined && onnx) notes.push('A 3-D X needs num_heads: --heads N.');
  if (heads === undefined && !onnx && rotary_embedding_dim > 0)
    notes.push('rotary_embedding_dim needs num_heads beside it: --heads N.');
  if (options.positions === undefined) notes.push(ASK_TABLES);
  const { cos, sin } = pairTables(spec, options, '_cache');
  const call = onnx ? 'RotaryEmbedding (ai.onnx, opset 23)' : 'RotaryEmbedding (com.microsoft, 1)';
  const own = { ...common, num_heads: heads, ...(onnx ? undefined : { scale: 1, is_packed_batching: 0 }) };
  return [{ call, arguments: own, tables: [cos, sin], notes }];
}

function readOnnx(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const both = givenTables(form, tables, '_cache');
  const where = form.path('cos_cache');
  const [rows, width] = rowsOf(both[0], where);
  const headSize = form.optionalInteger('head_size', 2);
  if (headSize !== undefined && headSize % 2 !== 0) form.refuse('SHAPE', 'head_size', 'an even number');
  const rotaryDim = form.optionalInteger('rotary_embedding_dim', 0) || (headSize ?? 2 * width);
  if (width < rotaryDim / 2) refuse('SHAPE', where, `last dim ${rotaryDim / 2}`, both[0].shape);
  const pairing = pairingOf(form.optionalInteger('interleaved', 0, 1));
  const scale = form.optionalNumber('scale') ?? 1;
  if (scale !== 1) refuse('UNSUPPORTED', form.path('scale'), '1, the only value that is documented', scale);
  const frame = { headDim: headSize ?? rotaryDim, rotaryDim, pairing };
  return specFromTables(frame, twoTables(both, { rows, pairs: rotaryDim / 2, width }), where);
}

const onnxPeerOf = (name: 'onnx' | 'onnxruntime', about: string): Peer => ({
  name,
  about,
  names:
    `head_size interleaved rotary_embedding_dim num_heads cos_cache sin_cache${name === 'onnx' ? '' : ' scale is_packed_batching'}`.split(
      ' ',
    ),
  tolerance: TABLE_TOLERANCE,
  drafts: (spec, options) => onnxDrafts(spec, options, name),
  read: readOnnx,
  recognizes: (form) =>
    form.has('cos_cache') && (form.has('scale') || form.has('is_packed_batching')) === (name === 'onnxruntime'),
});
export const onnxPeer = /* @__PURE__ */ onnxPeerOf('onnx', 'RotaryEmbedding, opset 23, with its caches');
export const onnxruntimePeer = /* @__PURE__ */ onnxPeerOf(
  'onnxruntime',
  'com.microsoft.RotaryEmbedding with its caches',
);

// InfiniOp

function infiniopDrafts(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const rope = checkLimits('infiniop', spec, { toHalf: 'algo' });
  const { headDim, rotaryDim, rotaryOffset } = rope;
  const { cos, sin } = pairTables(spec, options, '_table');
  const tables = [sin, cos];
  const ask = options.positions === undefined ? [ASK_TABLES] : [];
  if (spec.axes) {
    const notes = ['infiniopMRoPE rotates q and k together; positions are [3, tokens].', ...ask];
    return [{ call: 'infiniopCreateMRoPEDescriptor', arguments: mropeArguments(spec, rope), tables, notes }];
  }
  const gptJ = spec.pairing === 'interleaved';
  const algo = gptJ ? INFINIOP_ROPE_ALGO_GPT_J : INFINIOP_ROPE_ALGO_GPT_NEOX;
  const notes = [
    `algo ${algo} is INFINIOP_ROPE_ALGO_${gptJ ? 'GPT_J' : 'GPT_NEOX'}; sin_table comes before cos_table.`,
    'The tables have the dtype of x: in bf16 they have 8 bits.',
  ];
  const part = rotaryDim !== headDim;
  if (part)
    notes.push(
      `The operator rotates all of dhead: give x and y dhead ${rotaryDim}, a head stride of ${headDim} elements, and ` +
        `pointers ${rotaryOffset} elements into the head. In place, the other dimensions stay as they are.`,
    );
  const view = part ? { head_stride: headDim, x_offset: rotaryOffset } : undefined;
  const call = 'infiniopCreateRoPEDescriptor';
  return [{ call, arguments: { dhead: rotaryDim, algo, ...view }, tables, notes: [...notes, ...ask] }];
}

function mropeArguments(spec: RopeSpec, { headDim, rotaryDim, rotaryOffset }: EffectiveRope): Draft['arguments'] {
  const { rule, sections } = spec.axes!;
  const [t, h, w, e = 0] = sections as [number, number, number, number?];
  if (spec.pairing !== 'half')
    cannot('infiniop', 'infiniopMRoPE has half pairing only', 'Permute q and k first: ropewalk permute.');
  if (rotaryOffset !== 0) {
    const because = `infiniopMRoPE rotates the first rotary_dim dimensions, and this window starts at ${rotaryOffset}`;
    cannot('infiniop', because, 'Copy the window out.');
  }
  if ((rule !== 'sections' && rule !== 'interleaved') || e !== 0 || t + h + w !== rotaryDim / 2)
    cannot(
      'infiniop',
      `mrope_section needs t + h + w = rotary_dim / 2 = ${rotaryDim / 2} and the rule sections or interleaved, ` +
        `and this record has ${rule} ${sections.join(' + ')}`,
      'Gather the tables by token, and use infiniopRoPE with positions that count from 0.',
    );
  const mrope_interleaved = rule === 'interleaved';
  return { head_size: headDim, rotary_dim: rotaryDim, mrope_section: [t, h, w], mrope_interleaved };
}

function readInfiniop(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const both = givenTables(form, tables, '_table');
  const where = form.path('cos_table');
  const [rows, pairs] = rowsOf(both[0], where);
  const given = twoTables(both, { rows, pairs });
  if (form.has('mrope_section')) {
    const headDim = form.integer('head_size', 2, 2 ** 20);
    const rotaryDim = form.integer('rotary_dim', 2, headDim);
    if (rotaryDim !== 2 * pairs) refuse('SHAPE', where, `${rotaryDim / 2} columns, rotary_dim / 2`, pairs);
    const rule = form.flag('mrope_interleaved') ? 'interleaved' : 'sections';
    const axes = { rule, sections: form.integers('mrope_section') } as const;
    return specFromTables({ headDim, rotaryDim, pairing: 'half', axes }, given, where);
  }
  const dhead = form.optionalInteger('dhead', 2) ?? 2 * pairs;
  if (dhead !== 2 * pairs) refuse('SHAPE', where, `table_dim = dhead / 2 = ${dhead / 2} columns`, pairs);
  const headDim = form.optionalInteger('head_stride', dhead) ?? dhead;
  const rotaryOffset = form.optionalInteger('x_offset', 0) || undefined;
  const pairing = pairingOf(form.integer('algo', 0, 1) === INFINIOP_ROPE_ALGO_GPT_J);
  return specFromTables({ headDim, rotaryDim: dhead, rotaryOffset, pairing }, given, where);
}

export const infiniopPeer: Peer = {
  name: 'infiniop',
  about: 'sin and cos tables, algo; infiniopMRoPE for several axes',
  names:
    'sin_table cos_table dhead algo head_stride x_offset head_size rotary_dim mrope_section mrope_interleaved'.split(
      ' ',
    ),
  tolerance: TABLE_TOLERANCE,
  drafts: infiniopDrafts,
  read: readInfiniop,
  recognizes: (form) => form.has('sin_table') || form.has('algo'),
};

// aclnn

const ACLNN_PAIRINGS = ['half', 'interleaved', undefined, 'interleaved-to-half'] as const; // by mode

function aclnnDrafts(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, pairing } = checkLimits('aclnn', spec, {
    axes: [
      'rows of cos and sin are tokens with one position each',
      'Fill cos and sin by token instead: planRope takes positions on each axis.',
    ],
  });
  const mode = ACLNN_PAIRINGS.indexOf(pairing);
  const table = tableOf(spec, options);
  const interleaved = pairing === 'interleaved';
  // The table can leave out interleaved pairs of a head, but not half pairs: those need a view of the rotated part.
  const padded = interleaved && rotaryOffset % 2 === 0;
  const width = padded ? headDim : rotaryDim;
  const window = [rotaryOffset, rotaryOffset + rotaryDim];
  const fill = (values: RopeTable['cos'], rest: number): Float32Array => {
    const full = new Float32Array(table.rows * width).fill(rest);
    for (let row = 0; row < table.rows; row++) {
      const at = row * width + (padded ? rotaryOffset : 0);
      for (let j = 0; j < table.pairs; j++) {
        const [a, b] = interleaved ? [2 * j, 2 * j + 1] : [j, j + table.pairs];
        full[at + a] = full[at + b] = values[row * table.pairs + j]!;
      }
    }
    return full;
  };
  const notes = [
    'cos and sin have full width: [1, S, 1, D] for BSND, [1, 1, S, D] for BNSD, [S, 1, 1, D] for SBND.',
    'cos and sin have the dtype of x.',
    'Row s belongs to token s: gather rows by position where a sequence does not start at 0.',
  ];
  if (mode === ACLNN_ROTARY_MODE.interleaveHalf) notes.push('Mode 3 is documented for Ascend 950 only.');
  const sliced = width !== headDim;
  const part = `dimensions ${window[0]} to ${window[1]! - 1}`;
  if (sliced) notes.push(`The operator rotates all of D: call it on ${part} of x. Copy the others.`);
  const turned = padded && width !== rotaryDim;
  if (turned) notes.push('Where nothing rotates, cos is 1 and sin is 0.');
  if (options.positions === undefined) notes.push(ASK_TABLES);
  const shape = [1, table.rows, 1, width];
  const view = sliced ? { D: headDim, slice: window } : undefined;
  const own = { mode, layout: 'BSND', ...view, turned: turned ? window : undefined };
  const cos = { name: 'cos', shape, data: fill(table.cos, 1) };
  const sin = { name: 'sin', shape, data: fill(table.sin, 0) };
  return [{ call: 'aclnnRotaryPositionEmbedding', arguments: own, tables: [cos, sin], notes }];
}

function readAclnn(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const both = givenTables(form, tables, '');
  const [{ shape }] = both;
  const pairing = ACLNN_PAIRINGS[form.integer('mode', 0, 3)];
  if (!pairing)
    fail('UNSUPPORTED', form.path('mode'), 'quarter (2) has two position axes, which one table cannot tell apart');
  const layout = form.optionalText('layout') ?? 'BSND';
  const rank4 = shape.length === 4 && shape.filter((size, d) => d < 3 && size !== 1).length <= 1;
  if (!rank4) refuse('SHAPE', form.path('cos'), `one row a token, such as [1, S, 1, D], in layout ${layout}`, shape);
  const rows = Math.max(...shape.slice(0, 3));
  const width = shape[3]!;
  const range = (name: string, high: number): [number, number] => {
    const [start, end, ...more] = form.has(name) ? form.integers(name, 0, high) : [0, width];
    if (more.length > 0 || !(end! > start!) || (end! - start!) % 2 !== 0)
      refuse('FORMAT', form.path(name), '[start, end], an even number of dimensions', form.raw(name));
    return [start!, end!];
  };
  const slice = range('slice', 2 ** 20);
  const turned = range('turned', width);
  if (slice[1] - slice[0] !== width) refuse('SHAPE', form.path('slice'), `${width} dimensions, as cos has`, slice);
  const frame: Frame = {
    headDim: form.optionalInteger('D', 2) ?? width,
    rotaryDim: turned[1] - turned[0],
    rotaryOffset: slice[0] + turned[0] || undefined,
    pairing,
  };
  const step = pairing === 'interleaved' ? 2 : 1;
  const pairs = (turned[1] - turned[0]) / 2;
  const given = twoTables(both, { rows, pairs, width }, (j) => turned[0] + step * j);
  return specFromTables(frame, given, form.path('cos'));
}

export const aclnnPeer: Peer = {
  name: 'aclnn',
  about: 'aclnnRotaryPositionEmbedding: mode, layout, cos and sin',
  names: 'mode layout D slice turned cos sin'.split(' '),
  tolerance: TABLE_TOLERANCE,
  drafts: aclnnDrafts,
  read: readAclnn,
  recognizes: (form) => form.has('mode') && !form.has('n_dims') && (form.has('cos') || form.has('layout')),
};
