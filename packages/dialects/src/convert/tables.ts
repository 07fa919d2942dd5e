/**
 * Peers that rotate by given tables: ONNX, ONNX Runtime, InfiniOp, aclnn. A record becomes tables, and tables tell the record.
 *
 * @module
 * @see onnx/onnx@f754691 RotaryEmbedding-23; microsoft/onnxruntime@0941ecb contrib_ops/cpu/bert/rotary_embedding.cc;
 * InfiniTensor/InfiniCore@2cec6ce6 include/infiniop/ops/rope.h; CANN aclnnRotaryPositionEmbedding
 */

import { planRope, type RopeSpec, type RopeTable } from 'ropewalk';
import { type Fields, refuse } from 'ropewalk/backend';
import { ACLNN_ROTARY_MODE } from '../cann.js';
import { INFINIOP_ROPE_ALGO_GPT_J, INFINIOP_ROPE_ALGO_GPT_NEOX } from '../infiniop.js';
import { effectiveRope } from './effective.js';
import { type Frame, specFromFrequencies } from './explicit.js';
import {
  type ConvertOptions,
  cannot,
  type Draft,
  type FormTable,
  type GivenTable,
  type Peer,
  READS_NEIGHBOURS_WRITES_HALVES,
} from './form.js';

/** Frequencies read from an f32 table are good to a few roundings of sine and cosine. */
const TABLE_TOLERANCE = 2 ** -20;
/** Rows that are made for the check alone, where no table was asked for. */
const CHECK_ROWS = 64;
/** 2 GiB of cosines: longer tables are a slip of the hand. */
const MAX_ELEMENTS = 2 ** 29;

/**
 * Makes the table of a record for positions 0 … N − 1.
 *
 * @param spec - the record; axes do not count, as rows are positions
 * @param options - `positions` rows; enough rows to be read back where it is not given
 * @returns float64 angles, rounded once to f32
 * @throws {RopewalkError} RANGE for a table past 2 GiB
 */
export function tableOf(spec: RopeSpec, options: ConvertOptions): RopeTable {
  const rows = options.positions ?? CHECK_ROWS;
  const { rotaryDim } = effectiveRope(spec);
  if (rows * rotaryDim > MAX_ELEMENTS)
    refuse(
      'RANGE',
      'convert: --positions',
      `at most ${Math.floor(MAX_ELEMENTS / rotaryDim)} rows of ${rotaryDim} values`,
      rows,
    );
  const { axes: _, ...flat } = spec;
  return planRope({ ...flat, pairing: spec.pairing === 'vision' ? 'half' : spec.pairing, positions: 0, seqLen: rows })
    .table;
}

/** Cosines, then sines, side by side in each row. */
export function joinTables({ rows, pairs, cos, sin }: RopeTable): Float32Array {
  const joined = new Float32Array(rows * pairs * 2);
  for (let r = 0; r < rows; r++) {
    joined.set(cos.subarray(r * pairs, (r + 1) * pairs), r * 2 * pairs);
    joined.set(sin.subarray(r * pairs, (r + 1) * pairs), (2 * r + 1) * pairs);
  }
  return joined;
}

/** Cosines and sines as somebody gave them. */
export interface GivenTables {
  readonly rows: number;
  readonly pairs: number;
  readonly roundoff: number;
  cos(row: number, pair: number): number;
  sin(row: number, pair: number): number;
}

/** Takes a table apart whose rows hold cosines, then sines. */
export function splitTable({ shape, data, roundoff }: GivenTable, where: string): GivenTables {
  const [rows = 0, width = 0] = shape;
  if (shape.length !== 2 || width % 2 !== 0 || width === 0) refuse('SHAPE', where, '[max_position, rotary_dim]', shape);
  const pairs = width / 2;
  return { rows, pairs, roundoff, cos: (r, j) => data[r * width + j]!, sin: (r, j) => data[r * width + pairs + j]! };
}

/** Two tables of the same shape; `place` says at which column a pair stands. */
function twoTables(
  cos: GivenTable,
  sin: GivenTable,
  rows: number,
  pairs: number,
  place: (pair: number) => number,
  width = pairs,
): GivenTables {
  const roundoff = Math.max(cos.roundoff, sin.roundoff);
  return {
    rows,
    pairs,
    roundoff,
    cos: (r, j) => cos.data[r * width + place(j)]!,
    sin: (r, j) => sin.data[r * width + place(j)]!,
  };
}

/**
 * Finds the record behind tables whose row p is position p.
 *
 * Row 1 gives each frequency up to whole turns, as radians in (−π, π]; later rows, twice as far each time, sharpen it. Then every row must agree.
 *
 * @param frame - sizes and pairing
 * @param tables - at least two rows
 * @param where - names them in messages
 * @throws {RopewalkError} UNSUPPORTED when the rows are no rotation by position: ONNX allows such caches, and no record says them
 */
export function specFromTables(frame: Frame, tables: GivenTables, where: string): RopeSpec {
  const { rows, pairs, roundoff } = tables;
  if (rows < 2) refuse('SHAPE', where, 'at least two rows: the frequencies are in the step from position 0 to 1', rows);
  const magnitude = tables.cos(0, 0);
  const next = 'Caches of this kind can be used as they are, but no record says them.';
  if (!(Math.abs(magnitude) > 0))
    refuse('UNSUPPORTED', where, 'cos at position 0 to be the magnitude, a number other than 0', magnitude, next);
  const invFreq = new Float64Array(pairs);
  const slack = 16 * roundoff;
  for (let j = 0; j < pairs; j++) {
    const angle = (row: number): number => Math.atan2(tables.sin(row, j) / magnitude, tables.cos(row, j) / magnitude);
    let frequency = angle(1);
    for (let row = 2; row < rows; row *= 2) {
      const turns = Math.round((row * frequency - angle(row)) / (2 * Math.PI));
      const sharper = (angle(row) + turns * 2 * Math.PI) / row;
      // A slow pair's small sine has more digits than any angle near 1.
      if (Math.abs(row * frequency) > 1) frequency = sharper;
    }
    invFreq[j] = frequency;
    for (let row = 0; row < rows; row++) {
      // f32 recipes make angles that are off by their own rounding, which grows with the angle.
      const bound = slack + Math.abs(row * frequency) * (2 ** -20 + 2 * roundoff);
      if (bound >= 0.5) break;
      const expected = { cos: magnitude * Math.cos(row * frequency), sin: magnitude * Math.sin(row * frequency) };
      for (const part of ['cos', 'sin'] as const) {
        const got = tables[part](row, j);
        if (!(Math.abs(got - expected[part]) <= bound * Math.abs(magnitude)))
          refuse(
            'UNSUPPORTED',
            where,
            `${part} of pair ${j} at position ${row} to be ${expected[part]}, as rows 0 and 1 say`,
            got,
            next,
          );
      }
    }
  }
  return specFromFrequencies(frame, invFreq, magnitude, 8 * roundoff);
}

/** The tables of a draft, or the note that they were not asked for. */
function withTables(draft: Draft, options: ConvertOptions): Draft {
  if (options.positions !== undefined) return draft;
  return { ...draft, notes: [...(draft.notes ?? []), 'Give --positions N and --out DIR for the tables themselves.'] };
}

function pairTables(
  spec: RopeSpec,
  options: ConvertOptions,
  [first, second]: readonly ['cos' | 'sin', 'cos' | 'sin'],
  suffix: string,
): FormTable[] {
  const table = tableOf(spec, options);
  return [first, second].map((part) => ({
    name: `${part}${suffix}`,
    shape: [table.rows, table.pairs],
    data: table[part] as Float32Array,
  }));
}

function need(tables: ReadonlyMap<string, GivenTable>, name: string, form: Fields): GivenTable {
  return (
    tables.get(name) ??
    refuse(
      'FORMAT',
      form.path(name),
      'the name of a .npy file beside this one',
      form.raw(name),
      'convert --positions N --out DIR writes them.',
    )
  );
}

/** `[rows, columns]` of a table of rank 2. */
function rowsOf(table: GivenTable, where: string): [rows: number, columns: number] {
  if (table.shape.length !== 2) refuse('SHAPE', where, '[max_position, rotary_dim / 2]', table.shape);
  return table.shape as unknown as [number, number];
}

function sameShape(a: GivenTable, b: GivenTable, where: string): void {
  if (a.shape.join() !== b.shape.join()) refuse('SHAPE', where, `cos's shape [${a.shape}]`, b.shape);
}

// ONNX and ONNX Runtime

const GATHER =
  'Gather cos and sin by token, each pair by its own axis, and give them as 3-D caches without position_ids.';

function onnxDrafts(spec: RopeSpec, options: ConvertOptions, peer: 'onnx' | 'onnxruntime'): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, numAxes } = effectiveRope(spec);
  if (rotaryOffset !== 0)
    cannot(
      peer,
      `the node turns the first rotary_embedding_dim dimensions, and this window starts at ${rotaryOffset}`,
      'Put Split before the node and Concat behind it.',
    );
  if (spec.pairing === 'interleaved-to-half')
    cannot(
      peer,
      'interleaved has no third value that reads neighbours and writes halves',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  if (numAxes > 1)
    cannot(
      peer,
      'a token has one row of the caches, and this record turns pairs by several positions',
      peer === 'onnx'
        ? GATHER
        : 'com.microsoft.MRotaryEmbedding takes position_ids [3, batch, seq] and mrope_section (onnxruntime#31728).',
    );
  const interleaved = spec.pairing === 'interleaved' ? 1 : 0;
  const rotary_embedding_dim = rotaryDim === headDim ? 0 : rotaryDim;
  const heads = options.heads === undefined ? {} : { num_heads: options.heads };
  const onnx = peer === 'onnx';
  return [
    withTables(
      {
        call: onnx ? 'RotaryEmbedding (ai.onnx, opset 23)' : 'RotaryEmbedding (com.microsoft, 1)',
        arguments: {
          head_size: headDim,
          interleaved,
          rotary_embedding_dim,
          ...heads,
          ...(onnx ? {} : { scale: 1, is_packed_batching: 0 }),
        },
        tables: pairTables(spec, options, ['cos', 'sin'], '_cache'),
        notes: [
          onnx
            ? 'Inputs in this order: X, cos_cache, sin_cache, position_ids.'
            : 'Inputs in this order: input, position_ids, cos_cache, sin_cache.',
          ...(onnx
            ? []
            : ['scale stays 1: the CPU kernel reads it and does nothing with it; scaling is in the caches.']),
          ...(options.heads !== undefined
            ? []
            : onnx
              ? ['num_heads is needed where X has three dimensions: --heads N.']
              : rotary_embedding_dim > 0
                ? ['num_heads must be given beside rotary_embedding_dim: --heads N.']
                : []),
        ],
      },
      options,
    ),
  ];
}

function readOnnx(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const [cos, sin] = [need(tables, 'cos_cache', form), need(tables, 'sin_cache', form)];
  sameShape(cos, sin, form.path('sin_cache'));
  const [rows, width] = rowsOf(cos, form.path('cos_cache'));
  const given = form.optionalInteger('rotary_embedding_dim', 0) ?? 0;
  const rotaryDim = given === 0 ? (form.optionalInteger('head_size', 2) ?? 2 * width) : given;
  const headDim = form.optionalInteger('head_size', 2) ?? rotaryDim;
  if (width < rotaryDim / 2) refuse('SHAPE', form.path('cos_cache'), `last dim ${rotaryDim / 2}`, cos.shape);
  const interleaved = form.optionalInteger('interleaved', 0, 1) ?? 0;
  const scale = form.optionalNumber('scale') ?? 1;
  if (scale !== 1)
    refuse('UNSUPPORTED', form.path('scale'), '1: no kernel of ONNX Runtime says what another value does', scale);
  const frame = { headDim, rotaryDim, pairing: interleaved ? ('interleaved' as const) : ('half' as const) };
  return specFromTables(
    frame,
    twoTables(cos, sin, rows, rotaryDim / 2, (j) => j, width),
    form.path('cos_cache'),
  );
}

/** ONNX RotaryEmbedding, opset 23. */
export const onnxPeer: Peer = {
  name: 'onnx',
  about: 'RotaryEmbedding, opset 23, with its caches',
  tolerance: TABLE_TOLERANCE,
  drafts: (spec, options) => onnxDrafts(spec, options, 'onnx'),
  read: readOnnx,
  recognises: (form) => form.has('cos_cache') && !form.has('scale') && !form.has('is_packed_batching'),
};

/** ONNX Runtime's com.microsoft.RotaryEmbedding. */
export const onnxruntimePeer: Peer = {
  name: 'onnxruntime',
  about: 'com.microsoft.RotaryEmbedding with its caches',
  tolerance: TABLE_TOLERANCE,
  drafts: (spec, options) => onnxDrafts(spec, options, 'onnxruntime'),
  read: readOnnx,
  recognises: (form) => form.has('cos_cache') && (form.has('scale') || form.has('is_packed_batching')),
};

// InfiniOp

function infiniopDrafts(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, rotaryOffset } = effectiveRope(spec);
  if (spec.pairing === 'interleaved-to-half')
    cannot(
      'infiniop',
      'algo has no third value that reads neighbours and writes halves',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  const tables = pairTables(spec, options, ['sin', 'cos'], '_table');
  if (spec.axes) return [withTables({ ...mropeDraft(spec, headDim, rotaryDim, rotaryOffset), tables }, options)];
  const algo = spec.pairing === 'interleaved' ? INFINIOP_ROPE_ALGO_GPT_J : INFINIOP_ROPE_ALGO_GPT_NEOX;
  const part = rotaryDim !== headDim;
  return [
    withTables(
      {
        call: 'infiniopCreateRoPEDescriptor',
        arguments: { dhead: rotaryDim, algo, ...(part ? { head_stride: headDim, x_offset: rotaryOffset } : {}) },
        tables,
        notes: [
          `algo ${algo} is INFINIOP_ROPE_ALGO_${algo === INFINIOP_ROPE_ALGO_GPT_J ? 'GPT_J' : 'GPT_NEOX'}; sin_table comes before cos_table.`,
          'The tables have the dtype of x: in bf16 they have 8 bits.',
          ...(part
            ? [
                `The operator turns all of dhead: describe x and y with dhead ${rotaryDim} and a head stride of ${headDim} elements, and point ${rotaryOffset} elements into the head. In place the rest stays as it is.`,
              ]
            : []),
        ],
      },
      options,
    ),
  ];
}

function mropeDraft(spec: RopeSpec, headDim: number, rotaryDim: number, rotaryOffset: number): Draft {
  const { rule, sections } = spec.axes!;
  const [t, h, w, e = 0] = sections as [number, number, number, number?];
  if (spec.pairing !== 'half')
    cannot('infiniop', 'infiniopMRoPE turns halves only', 'Permute q and k to halves first: ropewalk permute.');
  if (rotaryOffset !== 0)
    cannot(
      'infiniop',
      `infiniopMRoPE turns the first rotary_dim dimensions, and this window starts at ${rotaryOffset}`,
      'Copy the window out.',
    );
  if ((rule !== 'sections' && rule !== 'interleaved') || e !== 0 || t + h + w !== rotaryDim / 2)
    cannot(
      'infiniop',
      `mrope_section holds t, h and w, which sum to rotary_dim / 2 = ${rotaryDim / 2}, by the rules sections or interleaved; here it is ${rule} ${sections.join(' + ')}`,
      'Gather the tables by token yourself, and use infiniopRoPE with positions that count from 0.',
    );
  return {
    call: 'infiniopCreateMRoPEDescriptor',
    arguments: {
      head_size: headDim,
      rotary_dim: rotaryDim,
      mrope_section: [t, h, w],
      mrope_interleaved: rule === 'interleaved',
    },
    notes: ['infiniopMRoPE turns q and k together; positions are [3, tokens].'],
  };
}

function readInfiniop(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const [sin, cos] = [need(tables, 'sin_table', form), need(tables, 'cos_table', form)];
  sameShape(cos, sin, form.path('sin_table'));
  const [rows, pairs] = rowsOf(cos, form.path('cos_table'));
  const given = twoTables(cos, sin, rows, pairs, (j) => j);
  const where = form.path('cos_table');
  if (form.has('mrope_section')) {
    const headDim = form.integer('head_size', 2, 2 ** 20);
    const rotaryDim = form.integer('rotary_dim', 2, headDim);
    if (rotaryDim !== 2 * pairs) refuse('SHAPE', where, `${rotaryDim / 2} columns, rotary_dim / 2`, pairs);
    const rule = form.flag('mrope_interleaved') ? ('interleaved' as const) : ('sections' as const);
    return specFromTables(
      { headDim, rotaryDim, pairing: 'half', axes: { rule, sections: form.integers('mrope_section') } },
      given,
      where,
    );
  }
  const dhead = form.optionalInteger('dhead', 2) ?? 2 * pairs;
  if (dhead !== 2 * pairs) refuse('SHAPE', where, `table_dim = dhead / 2 = ${dhead / 2} columns`, pairs);
  const headDim = form.optionalInteger('head_stride', dhead) ?? dhead;
  const rotaryOffset = form.optionalInteger('x_offset', 0) ?? 0;
  const algo = form.integer('algo', 0, 1);
  const pairing = algo === INFINIOP_ROPE_ALGO_GPT_J ? ('interleaved' as const) : ('half' as const);
  return specFromTables(
    { headDim, rotaryDim: dhead, ...(rotaryOffset ? { rotaryOffset } : {}), pairing },
    given,
    where,
  );
}

/** InfiniOp's RoPE and MRoPE. */
export const infiniopPeer: Peer = {
  name: 'infiniop',
  about: 'sin and cos tables, algo; infiniopMRoPE for several axes',
  tolerance: TABLE_TOLERANCE,
  drafts: infiniopDrafts,
  read: readInfiniop,
  recognises: (form) => form.has('sin_table') || form.has('algo'),
};

// aclnn

function aclnnDrafts(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, numAxes } = effectiveRope(spec);
  if (numAxes > 1)
    cannot(
      'aclnn',
      'rows of cos and sin are tokens here with one position each',
      'cos and sin may be anything by token: fill them with planRope, positions on each axis.',
    );
  const modes: Readonly<Record<string, number>> = {
    interleaved: ACLNN_ROTARY_MODE.interleave,
    half: ACLNN_ROTARY_MODE.half,
    'interleaved-to-half': ACLNN_ROTARY_MODE.interleaveHalf,
  };
  const mode = modes[spec.pairing]!;
  const table = tableOf(spec, options);
  // Neighbours that do not turn can be said in the table; halves of a part cannot, so the call gets a view of it.
  const padded = spec.pairing === 'interleaved' && rotaryOffset % 2 === 0;
  const width = padded ? headDim : rotaryDim;
  const slice = width === headDim ? {} : { D: headDim, slice: [rotaryOffset, rotaryOffset + rotaryDim] };
  const fill = (values: RopeTable['cos'], rest: number): Float32Array => {
    const full = new Float32Array(table.rows * width).fill(rest);
    const at = padded ? rotaryOffset : 0;
    for (let row = 0; row < table.rows; row++) {
      for (let j = 0; j < table.pairs; j++) {
        const value = values[row * table.pairs + j]!;
        const [a, b] = spec.pairing === 'interleaved' ? [2 * j, 2 * j + 1] : [j, j + table.pairs];
        full[row * width + at + a] = value;
        full[row * width + at + b] = value;
      }
    }
    return full;
  };
  const shape = [1, table.rows, 1, width];
  return [
    withTables(
      {
        call: 'aclnnRotaryPositionEmbedding',
        arguments: {
          mode,
          layout: 'BSND',
          ...slice,
          ...(padded && width !== rotaryDim ? { turned: [rotaryOffset, rotaryOffset + rotaryDim] } : {}),
        },
        tables: [
          { name: 'cos', shape, data: fill(table.cos, 1) },
          { name: 'sin', shape, data: fill(table.sin, 0) },
        ],
        notes: [
          'cos and sin are full width, [1, S, 1, D] for BSND; transpose them to [1, 1, S, D] for BNSD, [S, 1, 1, D] for SBND. They have the dtype of x.',
          "Row s is the token's, not the position's: gather rows by position where a sequence does not start at 0.",
          ...(mode === ACLNN_ROTARY_MODE.interleaveHalf ? ['Mode 3 is documented for Ascend 950 only.'] : []),
          ...('slice' in slice
            ? [
                `The operator turns all of D: call it on dimensions ${rotaryOffset} to ${rotaryOffset + rotaryDim - 1} of x, and copy the others.`,
              ]
            : []),
          ...(padded && width !== rotaryDim ? ['Where nothing turns, cos is 1 and sin is 0.'] : []),
        ],
      },
      options,
    ),
  ];
}

function readAclnn(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const [cos, sin] = [need(tables, 'cos', form), need(tables, 'sin', form)];
  sameShape(cos, sin, form.path('sin'));
  const mode = form.integer('mode', 0, 3);
  if (mode === ACLNN_ROTARY_MODE.quarter)
    refuse(
      'UNSUPPORTED',
      form.path('mode'),
      '0, 1 or 3: quarter turns each half by an axis of its own, which one position cannot tell',
      mode,
    );
  const layout = form.optionalText('layout') ?? 'BSND';
  const rank4 = cos.shape.length === 4 && cos.shape.filter((size, d) => d < 3 && size !== 1).length <= 1;
  if (!rank4) refuse('SHAPE', form.path('cos'), `[1, S, 1, D], or as ${layout} has it, one row a token`, cos.shape);
  const rows = Math.max(...cos.shape.slice(0, 3));
  const width = cos.shape[3]!;
  const slice = form.has('slice') ? form.integers('slice', 0, 2 ** 20) : [0, width];
  const turned = form.has('turned') ? form.integers('turned', 0, width) : [0, width];
  for (const [name, range] of Object.entries({ slice, turned }))
    if (range.length !== 2 || !(range[1]! > range[0]!) || (range[1]! - range[0]!) % 2 !== 0)
      refuse('FORMAT', form.path(name), '[start, end], an even number of dimensions', range);
  if (slice[1]! - slice[0]! !== width) refuse('SHAPE', form.path('slice'), `${width} dimensions, as cos has`, slice);
  const headDim = form.optionalInteger('D', 2) ?? width;
  const pairs = (turned[1]! - turned[0]!) / 2;
  const interleave = mode === ACLNN_ROTARY_MODE.interleave;
  const place = (j: number): number => turned[0]! + (interleave ? 2 * j : j);
  const rotaryOffset = slice[0]! + turned[0]!;
  const pairing = interleave
    ? ('interleaved' as const)
    : mode === ACLNN_ROTARY_MODE.half
      ? ('half' as const)
      : ('interleaved-to-half' as const);
  const frame: Frame = { headDim, rotaryDim: 2 * pairs, ...(rotaryOffset ? { rotaryOffset } : {}), pairing };
  return specFromTables(frame, twoTables(cos, sin, rows, pairs, place, width), form.path('cos'));
}

/** aclnnRotaryPositionEmbedding. */
export const aclnnPeer: Peer = {
  name: 'aclnn',
  about: 'aclnnRotaryPositionEmbedding: mode, layout, cos and sin',
  tolerance: TABLE_TOLERANCE,
  drafts: aclnnDrafts,
  read: readAclnn,
  recognises: (form) => form.has('mode') && !form.has('n_dims') && (form.has('cos') || form.has('layout')),
};
