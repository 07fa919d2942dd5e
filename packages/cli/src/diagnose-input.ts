/** The inputs of `ropewalk diagnose`: a kernel's dumps, and the RoPE that it should have computed. @module */
import type { RopeSource } from '@ropewalk/checkpoint';
import { batchFirst, contextSeen, expectationOf, type KernelRun, observationOf } from '@ropewalk/checkpoint/internal';
import { type Expected, laidOut, type Observation, positionFaults } from '@ropewalk/diagnose';
import { type CacheDiff, cacheDiff, RANK_LAYOUTS } from '@ropewalk/diagnose/internal';
import { DTYPES, type RopeSpec, RopewalkError, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkSides } from './cache-diff.js';
import { positionList, sideOf } from './cache-input.js';
import { readDump } from './dump-input.js';
import { FLOATS, Flags, flagOf, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { isPattern, joinRanks, rankFiles } from './rank-dumps.js';
import { readRope } from './rope-source.js';
import { type LayoutOptions, readTokenLayout } from './token-layout.js';

export type DiagnoseOptions = Texts<'x' | 'y' | 'positions' | 'expect' | 'layer' | 'context' | 'layout'> &
  Texts<'direction' | 'dtype' | 'shape' | 'heads' | 'positionsDtype' | 'normWeight' | 'normEps' | 'nextInput' | 'svg'> &
  Texts<'then' | 'thenPositions'> &
  LayoutOptions &
  Switches<'all' | 'demo' | 'json'>;

const LAYOUTS = ['bsnh', 'bnsh', 'sbnh'] as const;

/** The inputs of one diagnosis. */
export interface Task {
  readonly observation: Observation;
  readonly expected?: Expected;
  /** The source of the expectation, in words. */
  readonly from?: string;
  /** The file of the expectation, and the layer in it. */
  readonly source?: RopeSource | undefined;
  readonly layer?: number | undefined;
  /** The faults of the runtime's positions; undefined where they were not held against a layout. */
  readonly faults?: readonly string[];
  /** Compares y, in the layout that was found, with the same keys later in the cache. */
  readonly later?: ((layout: 'bsnh' | 'bnsh') => CacheDiff) | undefined;
  /** The runs of the ranks that were put together. */
  readonly ranks?: readonly Task[];
  /** The same runs at the positions of other layouts of ranks, by the names of these. */
  readonly otherwise?: ReadonlyMap<string, readonly Observation[]>;
}

/** Reads the files that the options name. @throws {RopewalkError} with the option */
export async function readTask(options: DiagnoseOptions): Promise<Task> {
  if (isPattern(options.x) || isPattern(options.y)) return readRanks(options);
  const { x, y, positions, normWeight } = options;
  const layout = readTokenLayout(options);
  if (x === undefined || y === undefined || (positions ?? layout) === undefined) {
    const missing = (['x', 'y', 'positions'] as const).filter((name) => options[name] === undefined).map(flagOf);
    fail(
      'FORMAT',
      missing.join(', '),
      'a diagnosis needs --x, --y and --positions. See a run first: ropewalk diagnose --demo.',
    );
  }
  const flags = new Flags(options);
  const dtype = flags.word('dtype', FLOATS);
  const shape = flags.integers('shape', 1, MAX_INTEGER, 4);
  const positionsDtype = flags.word('positionsDtype', DTYPES);
  if (positionsDtype !== undefined && !positions?.endsWith('.bin'))
    fail('FORMAT', '--positions-dtype', 'it is for a raw .bin; other files say it themselves. Leave it out.');
  if (shape !== undefined && ![x, y].some((file) => file.endsWith('.bin')))
    fail('FORMAT', '--shape', 'it is for raw .bin files; other files say it themselves. Leave it out.');
  if (normWeight === undefined) flags.refuseAny(['normEps'], 'it needs --norm-weight.');
  const laid = layout && laidOut(layout);
  const run = {
    x: readDump(x, '--x', { dtype, shape }),
    y: readDump(y, '--y', { dtype, shape }),
    positions:
      positions === undefined
        ? tensorFrom(laid!.positions, { shape: laid!.shape })
        : readDump(positions, '--positions', { dtype: positionsDtype, dtypeField: '--positions-dtype' }),
    normWeight: normWeight === undefined ? undefined : readDump(normWeight, '--norm-weight', { dtype }),
    normEps: flags.number('normEps'),
    layout: flags.word('layout', LAYOUTS),
    heads: flags.integer('heads', 1),
    dtype,
  };
  if (positionsDtype !== undefined) checkPositions(run.positions, positions!);
  if (positions === undefined) checkTokens(run.x, laid!.shape.at(-1)!, options);
  const expectation = await readExpected(flags, options, run.positions);
  const nameOf = (field: keyof typeof run | 'expected') => flagOf(field === 'expected' ? 'expect' : field);
  // A kernel may rotate padding by any position, or not at all.
  const own = positions === undefined ? { ...run, ...withoutPadding(run, laid!) } : run;
  const observation = observationOf(own, expectation?.expected, nameOf);
  const faults =
    layout && positions !== undefined ? positionFaults(run.positions.readNumbers() as Float64Array, layout) : undefined;
  return { observation, ...expectation, faults, later: readLater(options, observation, expectation?.expected.spec) };
}

/** Sets padding to 0 in x and y: 0 is right at every position. */
function withoutPadding(
  { x, y, layout }: Pick<KernelRun, 'x' | 'y' | 'layout'>,
  { shape, sequences }: ReturnType<typeof laidOut>,
): Pick<Observation, 'x' | 'y'> {
  const [batch, seq] = shape.slice(-2) as [number, number];
  const used = new Set(sequences.flatMap(({ places }) => places));
  const size = (sizes: readonly number[]): number => sizes.reduce((a, b) => a * b, 1);
  const kept = (one: Tensor): Tensor => {
    const rank = one.shape.length;
    const isFirst = layout === 'sbnh';
    const at = isFirst ? 0 : layout === 'bnsh' ? rank - 2 : one.shape.indexOf(seq, rank === 4 || batch > 1 ? 1 : 0);
    if (at < 0) return one;
    const [row, inner] = [size(one.shape.slice(isFirst ? 2 : Math.min(at, 1))), size(one.shape.slice(at + 1))];
    const host = (one.read() as Float32Array).slice();
    for (let n = 0; n < host.length; n++)
      if (!used.has((Math.floor(n / row) % batch) * seq + (Math.floor(n / inner) % seq))) host[n] = 0;
    return tensorFrom(host, { shape: one.shape, dtype: one.dtype });
  };
  return used.size === batch * seq ? { x, y } : { x: kept(x), y: kept(y) };
}

/** Reads the dumps of all ranks, and puts them together. */
async function readRanks(options: DiagnoseOptions): Promise<Task> {
  const { x, y, positions, rankLayout: name } = options;
  if (name === undefined || name.includes(':'))
    refuse('FORMAT', '--rank-layout', `for all ranks' dumps one of ${RANK_LAYOUTS.join(', ')}, tp`, name);
  new Flags(options).refuseAny(['then', 'nextInput'], 'it is for one run. Leave it out beside the dumps of ranks.');
  const ys = rankFiles(y ?? '', '--y');
  const xs = rankFiles(x ?? '', '--x', ys.length);
  const own = isPattern(positions) ? rankFiles(positions!, '--positions', ys.length) : undefined;
  const ranks: Task[] = [];
  for (const [n, file] of ys.entries()) {
    const rankLayout = name === 'tp' ? undefined : `${name}:${n}/${ys.length}`;
    ranks.push(await readTask({ ...options, x: xs[n]!, y: file, positions: own?.[n] ?? positions, rankLayout }));
  }
  const others = name === 'tp' || positions !== undefined ? [] : RANK_LAYOUTS.filter((other) => other !== name);
  const otherwise = new Map(others.flatMap((other) => asLaidOut(ranks, other, options)));
  const layout = new Flags(options).word('layout', LAYOUTS) === 'bnsh' ? 'bnsh' : 'bsnh'; // each run is read already
  const runs = ranks.map((one) => one.observation);
  const told = ranks.some(({ faults }) => faults);
  const faults = told ? ranks.flatMap((one, n) => (one.faults ?? []).map((words) => `rank ${n}: ${words}`)) : undefined;
  return { ...ranks[0]!, observation: joinRanks(runs, layout), faults, ranks, otherwise };
}

/** The runs of ranks at the positions of another layout, if it can share these tokens. */
function asLaidOut(ranks: readonly Task[], layout: string, options: DiagnoseOptions): [string, Observation[]][] {
  try {
    const runs = ranks.map(({ observation }, n) => {
      const { positions, shape } = laidOut(
        readTokenLayout({ ...options, rankLayout: `${layout}:${n}/${ranks.length}` })!,
      );
      return { ...observation, positions: tensorFrom(positions, { shape }) };
    });
    return runs.every(({ positions }, n) => positions.size === positionList(ranks[n]!.observation.positions).length)
      ? [[layout, runs]]
      : [];
  } catch (error) {
    if (error instanceof RopewalkError) return [];
    throw error;
  }
}

/** Reads the same keys later in the cache. */
function readLater(options: DiagnoseOptions, observation: Observation, rope?: RopeSpec): Task['later'] {
  const flags = new Flags(options);
  if (options.then === undefined) {
    flags.refuseAny(['thenPositions'], 'it needs --then.');
    return undefined;
  }
  const form = { dtype: flags.word('dtype', FLOATS), shape: flags.integers('shape', 1, MAX_INTEGER, 4) };
  const keys = batchFirst(readDump(options.then, '--then', form), flags.word('layout', LAYOUTS), '--then');
  const { thenPositions } = options;
  const later = thenPositions === undefined ? undefined : positionList(readDump(thenPositions, '--then-positions', {}));
  return (layout) => {
    const sides = [sideOf(observation.y, '--y', layout), sideOf(keys, '--then', layout)] as const;
    const places = later && ([positionList(observation.positions).slice(0, sides[0].tokens), later] as const);
    return cacheDiff(
      [{ layer: 0, keys: checkSides(sides, rope, places, ['--y', '--then']), ...(rope && { rope }) }],
      places,
    );
  };
}

/** Integers of another width give positions that no model has: two of i32 make one of i64. */
function checkPositions(positions: Tensor, file: string): void {
  const wild = (positions.readNumbers() as Float64Array).find(
    (one) => !Number.isInteger(one) || Math.abs(one) > 2 ** 31,
  );
  if (wild === undefined) return;
  const size = `${positions.size} ${positions.dtype}`;
  fail(
    'DTYPE',
    '--positions-dtype',
    `as ${size}, ${file} has the position ${wild}. It holds another type, such as i32.`,
  );
}

/** Checks that x has the tokens of the layout, of which a rank has a share. */
function checkTokens(x: Tensor, tokens: number, options: DiagnoseOptions): void {
  if (x.shape.includes(tokens)) return;
  const name = (['tokens', 'cuSeqlens', 'attentionMask', 'chunks'] as const).find((one) => options[one] !== undefined)!;
  const [, rank] = options.rankLayout?.split(':') ?? [];
  const whose = rank ? `, the share of rank ${rank}` : '';
  const text = `it gives ${tokens} tokens${whose}, and ${options.x} has the shape [${x.shape.join(', ')}]. Give the tokens of these rows.`;
  fail('SHAPE', flagOf(name), text);
}

async function readExpected(
  flags: Flags<DiagnoseOptions>,
  { expect }: DiagnoseOptions,
  positions: Tensor,
): Promise<(Pick<Task, 'source' | 'layer'> & { expected: Expected; from: string }) | undefined> {
  if (expect === undefined) {
    flags.refuseAny(['layer', 'context', 'direction'], 'it needs --expect.');
    return undefined;
  }
  const [context, layer] = [flags.integer('context', 1), flags.integer('layer')];
  let rope = await readRope(expect, context, layer, true);
  const seen = context === undefined && rope.source?.kind === 'model' ? contextSeen(rope.spec, positions) : undefined;
  if (seen !== undefined) {
    const { from } = rope;
    rope = { ...(await readRope(expect, seen, layer, true)), from: `${from}, ${seen} tokens in use` };
  }
  return { ...expectationOf(rope, flags.word('direction', ['forward', 'backward'])), source: rope.source, layer };
}
