/** `ropewalk compare-logits`: compares the logits of two sides, each a file or a model. @module */
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { readExactly } from '@ropewalk/formats';
import { elementsAt, npyHeaderOf } from '@ropewalk/formats/internal';
import { openFile, readAt, refuseSystem } from '@ropewalk/formats/internal/node';
import { compareLogits as compare, type LogitBlocks, type LogitComparison } from '@ropewalk/model';
import { isFloat, sizeBytes } from 'ropewalk';
import { fail, loadNumber, refuse } from 'ropewalk/backend';
import { type LogitsInput, type LogitsRun, openRun, readSeen, type Seen } from './logits.js';
import { Flags, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';

export type CompareLogitsOptions = LogitsInput & Texts<'tolerance' | 'top1' | 'kl'>;

/**
 * The largest mean KL divergence of a right runtime, in nats. Measured (docs/model.md): quantised weights, activations
 * in 8 bits and GELU from a table of f16 give 1e-6 to 7e-3; wrong frequencies, norms or activations 1e-2 to 1.
 */
const KL = 0.01;
/** The largest difference of a logit between runtimes of float32. */
const EXACT = 1e-3;

/** The limits. Undefined fields are not judged. */
interface Limits {
  /** The largest difference of a logit. */
  readonly tolerance: number | undefined;
  /** The least share of tokens with the same likeliest id. */
  readonly top1: number | undefined;
  /** The largest mean KL divergence. */
  readonly kl: number | undefined;
}
/** The logits that are read at a time: 16 MB in f32. */
const BLOCK_LOGITS = 2 ** 22;

/** One side of the comparison. */
interface Side {
  readonly about: string;
  readonly shape: readonly [tokens: number, vocabSize: number];
  blocks(): LogitBlocks;
  close(): unknown;
}

/**
 * @param a - the reference: a .npy file, or a model
 * @returns 0 within the limits, 1 beyond
 */
export async function compareLogits(a: string, b: string, options: CompareLogitsOptions): Promise<number> {
  const flags = new Flags(options);
  const limits = limitsOf(flags);
  const models = [a, b].filter((path) => !isNpy(path));
  for (const path of models) await checkModelPath(path);
  if (models.length === 0)
    flags.refuseAny(
      ['tokens', 'prompt', 'file', 'positions', 'backend', 'threads', 'context', 'cacheDtype', 'activations'],
      'it is about a model, and both A and B are .npy files. Leave it out.',
    );
  const seen = models.length > 0 ? await readSeen('compare-logits', options) : undefined;
  const opened = new Map<string, Side>();
  let first: { readonly path: string; readonly ids: readonly number[] } | undefined;
  try {
    // Files are opened first, so that a model of another shape is refused before its weights are read.
    for (const path of new Set([a, b].sort((x, y) => Number(isNpy(y)) - Number(isNpy(x))))) {
      const other = [...opened][0];
      const check = (shape: readonly number[]): void => {
        if (other?.[1].shape.some((size, n) => size !== shape[n]))
          refuse('SHAPE', path, `shape [${other[1].shape.join(', ')}], as ${other[0]} has`, shape);
      };
      const checkRun = ({ ids, shape }: Pick<LogitsRun, 'ids' | 'shape'>): void => {
        first ??= { path, ids };
        checkSameIds(path, ids, first);
        check(shape);
      };
      const side = seen && !isNpy(path) ? await openModel(path, seen, options, checkRun) : await openNpy(path);
      opened.set(path, side);
      check(side.shape);
    }
    const [left, right] = [opened.get(a)!, opened.get(b)!];
    const [tokens, vocabSize] = left.shape;
    const bar = openPercentBar('of the tokens', options.json);
    const blocks = shownBy(left.blocks(), (logits) => bar.to(logits / (tokens * vocabSize)));
    const found = await compare(blocks, right.blocks(), { vocabSize }).finally(() => bar.stop());
    const beyond = beyondOf(found, limits);
    const same = found.broken === undefined && beyond.length === 0;
    printResult(options.json, {
      json: () => ({
        a: { name: a, about: left.about },
        b: { name: b, about: right.about },
        same,
        limits,
        ...found,
      }),
      lines: () => [`A  ${a}: ${left.about}`, `B  ${b}: ${right.about}`, ...describe(found, limits, beyond)],
    });
    return same ? EXIT.ok : EXIT.failed;
  } finally {
    for (const side of opened.values()) await side.close();
  }
}

function limitsOf(flags: Flags<CompareLogitsOptions>): Limits {
  const limit = (name: keyof Limits, most: number): number | undefined => {
    const value = flags.number(name);
    if (value !== undefined && !(value >= 0 && value <= most))
      refuse('RANGE', `--${name}`, most === 1 ? 'a share in [0, 1]' : 'a number >= 0', value);
    return value;
  };
  const given = { tolerance: limit('tolerance', Infinity), top1: limit('top1', 1), kl: limit('kl', Infinity) };
  return Object.values(given).some((one) => one !== undefined) ? given : { ...given, kl: KL };
}

/** Describes each limit that is exceeded. */
function beyondOf({ maxDifference = 0, top1 = 1, klMean = 0 }: LogitComparison, { tolerance, ...limits }: Limits) {
  const beyond: string[] = [];
  if (tolerance !== undefined && maxDifference > tolerance) beyond.push(`logits differ by more than ${tolerance}`);
  if (limits.kl !== undefined && klMean > limits.kl)
    beyond.push(`the mean KL divergence is ${short(klMean)}, more than ${limits.kl}`);
  if (limits.top1 !== undefined && top1 < limits.top1)
    beyond.push(
      `the likeliest id is the same at ${percent(top1)} % of the tokens, less than ${percent(limits.top1)} %`,
    );
  return beyond;
}

function isNpy(path: string): boolean {
  return /\.npy$/i.test(path);
}

/** @throws {RopewalkError} FORMAT for a path that is no model by its name, or missing */
async function checkModelPath(path: string): Promise<void> {
  const expected = 'a .npy file of logits, or a model: a .gguf file or a folder';
  const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, expected, cause));
  const name = basename(path);
  if (!info.isDirectory() && !/\.gguf$/i.test(name) && name !== 'config.json') refuse('FORMAT', path, expected, name);
}

/** Lets each model's own tokenizer read a text. @throws {RopewalkError} FORMAT when two make different tokens of it */
function checkSameIds(
  path: string,
  ids: readonly number[],
  first: { readonly path: string; readonly ids: readonly number[] },
): void {
  const longer = ids.length > first.ids.length ? ids : first.ids;
  const at = longer.findIndex((_, n) => ids[n] !== first.ids[n]);
  if (at < 0) return;
  const [own, other] = [ids, first.ids].map((list) => (at < list.length ? `id ${list[at]}` : 'the end'));
  const parts = `token ${at} is ${own}, there it is ${other}`;
  const sentence = `its tokenizer makes other tokens of the text than that of ${first.path}: ${parts}.`;
  fail('FORMAT', path, `${sentence} Give both the same ids: --tokens FILE.npy.`);
}

/** Passes blocks on. @param show - called with the number of logits up to then */
async function* shownBy(blocks: LogitBlocks, show: (logits: number) => void) {
  let done = 0;
  for await (const block of blocks) {
    yield block;
    show((done += block.length));
  }
}

/** @param check - refuses tokens or a shape; called before the weights are read */
async function openModel(
  path: string,
  seen: Seen,
  options: LogitsInput,
  check: (run: Pick<LogitsRun, 'ids' | 'shape'>) => void,
): Promise<Side> {
  const run = await openRun(path, seen, options, { check });
  const { shape, architecture, backend } = run;
  return { about: `${architecture}, ${shape[0]} tokens on ${backend}`, shape, blocks: run.blocks, close: run.dispose };
}

async function openNpy(path: string): Promise<Side> {
  const { file, size } = await openFile(path);
  const source = { size, read: (start: number, length: number) => readAt(file, start, length, path) };
  try {
    const header = await npyHeaderOf(source, path);
    const { shape, fortranOrder, dataOffset, bigEndian } = header;
    const dtype = header.dtype === 'u16' ? 'bf16' : header.dtype; // npy has no bf16; its bits are stored as u16
    if (!isFloat(dtype)) refuse('DTYPE', path, 'f16, bf16, f32 or f64', dtype);
    const [tokens, vocabSize] = shape;
    if (shape.length !== 2 || !tokens || !vocabSize) refuse('SHAPE', path, 'shape [tokens, vocabulary]', shape);
    if (fortranOrder)
      fail('UNSUPPORTED', path, 'its rows are not together (fortran_order). Save it with numpy.ascontiguousarray.');
    const step = Math.max(1, Math.floor(BLOCK_LOGITS / vocabSize));
    const rowBytes = vocabSize * sizeBytes(dtype);
    return {
      about: `${dtype} [${shape.join(', ')}]`,
      shape: [tokens, vocabSize],
      async *blocks() {
        for (let row = 0; row < tokens; row += step) {
          const rows = Math.min(step, tokens - row);
          const bytes = await readExactly(source, dataOffset + row * rowBytes, rows * rowBytes, path);
          const block = elementsAt(bytes, 0, dtype, rows * vocabSize, bigEndian);
          const widened = (_: unknown, n: number): number => loadNumber(block, dtype, n);
          // `from` would first copy a list that has an iterator.
          yield block instanceof Uint16Array ? Float32Array.from({ length: block.length }, widened) : block;
        }
      },
      close: () => file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

function describe(found: LogitComparison, limits: Limits, beyond: readonly string[]): string[] {
  const { tokens, compared, broken, maxDifference = 0, maxDifferenceAt: at, firstApart, top1, top5 } = found;
  const lines: string[] = [];
  if (compared > 0) {
    const where = at ? ` at token ${at.token}, id ${at.id}: ${exact(at.a)} in A, ${exact(at.b)} in B` : '';
    const apart = firstApart
      ? `; first apart at token ${firstApart.token}: id ${firstApart.a}, and ${firstApart.b} in B`
      : '';
    lines.push(
      `  max |Δ|   ${short(maxDifference)}${where}`,
      `  KL(A‖B)   mean ${short(found.klMean!)} nats, max ${short(found.klMax!)} at token ${found.klMaxToken}`,
      `  top-1     the same at ${Math.round(top1! * compared)} of ${compared} tokens${apart}`,
      `  top-5     ${percent(top5!)} % of the five likeliest ids are in both`,
    );
  }
  if (broken)
    lines.push(
      `  broken    ${tokens - compared} of ${tokens} tokens are not compared: the first is token ${broken.token}, ` +
        `whose id ${broken.id} has ${broken.a} in A and ${broken.b} in B`,
    );
  lines.push(verdict(found, limits, beyond));
  return lines;
}

/** Explains the numbers in one line. */
function verdict(
  { broken, maxDifference = 0, firstApart }: LogitComparison,
  limits: Limits,
  beyond: readonly string[],
): string {
  if (broken) {
    const masked = [broken.a, broken.b].includes(Number.NEGATIVE_INFINITY) && Math.max(broken.a, broken.b) < Infinity;
    if (!masked || broken.a === broken.b) return 'different: some logits are no numbers';
    return 'different: an id is ruled out (-Infinity) in one only; rule it out in both to compare the other ids';
  }
  if (maxDifference === 0) return 'same: every logit is equal';
  if (beyond.length > 0) {
    const text = firstApart
      ? `with A and B the likeliest text parts after token ${firstApart.token}`
      : 'the likeliest next token is the same everywhere';
    return `different: ${beyond.join('; ')}; ${text}`;
  }
  const each = limits.tolerance ?? EXACT;
  if (maxDifference <= each) {
    // If no logit differs by more than d, no probability differs by more than the factor exp(2d).
    const most = percent(Math.expm1(2 * maxDifference));
    return `same: no logit differs by more than ${each}, and no probability by more than ${most} % of itself`;
  }
  const kept = [
    limits.kl !== undefined && `mean KL <= ${limits.kl}`,
    limits.top1 !== undefined && `top-1 >= ${limits.top1}`,
  ];
  return `within ${kept.filter(Boolean).join(', ')}: no further than rounding to blocks or 8 bits goes. In float32: --tolerance ${EXACT}`;
}

/** `0.31`, `3.2e-6` */
function short(value: number): string {
  return value > 0 && value < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Formats a number with six digits. */
function exact(value: number): string {
  return String(Number(value.toPrecision(6)));
}

/** Formats a share in per cent: `0.2`, `100`. */
function percent(share: number): string {
  return String(Number((100 * share).toPrecision(3)));
}
