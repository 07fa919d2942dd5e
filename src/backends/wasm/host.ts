/**
 * The CPU backend's host side: each plan becomes one job or a few, written as words for the kernels.
 *
 * Orders of words are the kernels' own: see each one's docstring in assembly/.
 *
 * @module
 */
import { BLOCK_BYTES, BLOCK_WEIGHTS, type BlockTensor, isBlocks } from '../../core/blocks.js';
import type { Dtype } from '../../core/dtypes.js';
import { sizeBytes } from '../../core/dtypes.js';
import { RopewalkError, refuse } from '../../core/errors.js';
import { countElements, isRowMajor } from '../../core/shape.js';
import { copyBits, denseTensor, hostOf, type Tensor } from '../../core/tensor.js';
import type { AddPlan } from '../../ops/add.js';
import type { ArgmaxPlan } from '../../ops/argmax.js';
import type { EmbeddingPlan } from '../../ops/embedding.js';
import type { LinearPlan } from '../../ops/linear.js';
import type { RearrangePlan } from '../../ops/rearrange.js';
import type { RmsNormPlan } from '../../ops/rms-norm.js';
import type { RopeCall } from '../../ops/rope/call.js';
import { checkPlan, type OpPlan, unknownPlan } from '../../ops/runner.js';
import type { SelfAttentionPlan } from '../../ops/self-attention.js';
import type { SwigluPlan } from '../../ops/swiglu.js';
import type { Backend, BackendOptions, Capabilities } from '../backend.js';
import { whyFloat64 } from '../float64.js';
import { Uploads } from '../uploads.js';
import { joinDims, rowsOf } from '../walks.js';
import { type Block, takeStorage, WasmMemory } from './memory.js';
import { compileKernels, type Kernels } from './module.js';
import { Operands, TYPE } from './operands.js';
import { BOARD_WORDS, Pool, threadsHere } from './pool.js';

/** The kernels, numbered as assembly/index.ts switches on them. */
const KERNEL = {
  rope: 0,
  rmsNorm: 1,
  add: 2,
  swiglu: 3,
  rearrange: 4,
  embedding: 5,
  argmax: 6,
  widenRows: 7,
  linearFew: 8,
  packRows: 9,
  linearMany: 10,
  attentionFew: 11,
  attentionMany: 12,
  exponential: 13,
  trapElsewhere: 14,
  convert: 15,
  embeddingWide: 16,
  splitRows: 17,
  linearBlocks: 18,
} as const;

/** Bytes of a row of x of `k` elements once it is split for integer products: splitRowBytes of assembly/quantised.ts. */
const splitRowBytes = (k: number): number => 16 + (k / 32) * 144;

/** The bottom of memory: below 2048 the kernels' own constants, then the job board, then the words of a job, then tensors. */
const BOARD = 2048;
const ARGS = 4096;
const ARGS_WORDS = 15360;
const HEAP = ARGS + ARGS_WORDS * 4;

/** Words of a rope job before its parts, and of each part; as in assembly/rope.ts. */
const ROPE_HEAD = 14;
const ROPE_PART = 18;

/** Less work than this, in bytes moved, is done before a sleeping thread has woken. */
const WORTH_THREADS = 1 << 18;
/** Work of one claim, in bytes moved: enough to make claiming cheap, little enough to share out evenly. */
const CHUNK_BYTES = 1 << 16;
/** The board counts chunks in 20 bits. */
const MAX_CHUNKS = 1 << 19;
/** A multiply-add takes about as long as moving half a byte: 25 against 13 thousand million a second, measured. */
const BYTES_PER_MADD = 0.5;

/** Tile columns, and the sizes of linearMany's and attentionMany's working sets; as in assembly/. */
const NR = 8;
const KC = 256;
const NC = 64;
const KEYS = 96;
/** Elements that are converted at a time: as f32 they stay in the first-level cache between reading and writing. */
const CONVERT_BLOCK = 4096;
/** Rows of x that linearMany packs at a time: with 64 columns of sums they fill half of a second-level cache. */
const BLOCK_ROWS = 768;
/** Up to so many rows of x, each row of W is multiplied as it streams by; above, packing pays. */
const FEW_ROWS = 6;
const FEW_ROWS_OF_BLOCKS = 8;
/** Up to so many queries of one KV head, keys and values are used where they lie. */
const FEW_QUERIES = 16;
/** Queries of one KV head that share a packed block of keys. */
const QUERY_ROWS = 120;

/** The backend. Open it with {@link openCpu}. */
export class CpuBackend implements Backend {
  readonly name = 'cpu';
  private readonly tables: Uploads<Block>;
  private scratch: Block | undefined;
  /** Of each thread. */
  private scratchBytes = 0;
  private wordsView: Int32Array<ArrayBufferLike> | undefined;
  private realsView: Float32Array<ArrayBufferLike> | undefined;
  private closed = false;
  /** Tile rows: the two modules differ in it. */
  private readonly tileRows: number;

  constructor(
    readonly memory: WasmMemory,
    readonly kernels: Kernels,
    /** Visible for tests. */
    readonly pool: Pool,
    /** Which module runs, and why not a faster one or more threads. */
    private readonly found: { readonly simd: string; readonly notTaken: readonly string[] },
    /** Takes the plans that need float64, if anybody does. */
    private readonly float64: ((plan: OpPlan) => void) | undefined,
  ) {
    // No function here names `this`: tensors keep the memory, and through it would keep a backend that was dropped, and its threads.
    const tables = new Uploads<Block>((block) => memory.free(block));
    memory.reclaim = () => tables.drop(0);
    this.tables = tables;
    this.tileRows = kernels.tileRows();
  }

  capabilities(): Capabilities {
    const { threads } = this.pool;
    return {
      backend: 'cpu',
      description:
        `WebAssembly ${this.found.simd}, ${threads > 1 ? `${threads} threads over shared memory` : 'one thread'}` +
        (this.float64 ? '; f64 on the reference' : ''),
      dtypes: [...(this.float64 ? (['f64'] as const) : []), 'f32', 'f16', 'bf16'],
      threads,
      memory: { availableBytes: this.memory.limitBytes - HEAP - this.memory.heldBytes },
      notTaken: [...this.found.notTaken, ...(this.pool.whyNot ? [this.pool.whyNot] : [])],
    };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.checkOpen();
    return denseTensor(dtype, shape, (length) => {
      const storage = takeStorage(this.memory, dtype, length);
      // A block may have held something before.
      new Uint8Array(this.memory.buffer, storage.address, length * sizeBytes(dtype)).fill(0);
      return storage;
    });
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.checkOpen();
    hostOf(source, 'cpu: upload'); // before memory is taken
    const copy = denseTensor(source.dtype, source.shape, (length) => takeStorage(this.memory, source.dtype, length));
    try {
      copyBits(hostOf(source, 'cpu: upload'), source, hostOf(copy, 'cpu: upload'), copy); // fetched anew: taking memory may have moved it
      return copy;
    } catch (error) {
      copy.dispose();
      throw error;
    }
  }

  whyNot(plan: OpPlan): string | undefined {
    checkPlan(plan);
    return this.float64 ? undefined : whyFloat64(plan);
  }

  /**
   * Runs a plan; it is done on return.
   *
   * @throws {RopewalkError} DEVICE when memory is full or a thread died; UNSUPPORTED for what f32 cannot do, where nobody else takes it
   */
  run(plan: OpPlan): void {
    this.checkOpen();
    checkPlan(plan);
    const why = whyFloat64(plan);
    if (why) {
      if (!this.float64)
        throw new RopewalkError(
          'UNSUPPORTED',
          `cpu: ${plan.op}: expected a plan for f32 kernels, got another: ${why}.`,
        );
      this.float64(plan);
      return;
    }
    const operands = new Operands(this.memory);
    try {
      switch (plan.op) {
        case 'add':
          this.elementwise(KERNEL.add, plan.a, plan.b, plan, operands);
          break;
        case 'swiglu':
          this.elementwise(KERNEL.swiglu, plan.gate, plan.up, plan, operands);
          break;
        case 'rearrange':
          this.rearrange(plan, operands);
          break;
        case 'embedding':
          this.embedding(plan, operands);
          break;
        case 'argmax':
          this.argmax(plan, operands);
          break;
        case 'rms_norm':
          this.rmsNorm(plan, operands);
          break;
        case 'rope':
          this.rope(plan, operands);
          break;
        case 'linear':
          this.linear(plan, operands);
          break;
        case 'self_attention':
          this.selfAttention(plan, operands);
          break;
        default:
          unknownPlan(plan satisfies never);
      }
      operands.takeHome();
    } finally {
      operands.release();
    }
  }

  async finish(): Promise<void> {}

  dispose(): void {
    if (this.closed) return;
    this.closed = true;
    this.pool.dispose();
    this.tables.clear();
  }

  /**
   * Runs a kernel over units, on all threads where that is worth it.
   *
   * @param units - independent pieces of work
   * @param unitBytes - bytes that one moves, or what its arithmetic is worth
   * @param words - the kernel's; what is no i32 is written by who calls {@link start}
   * @param scratchBytes - of each thread
   */
  private launch(kernel: number, units: number, unitBytes: number, words: readonly number[], scratchBytes = 0): void {
    if (units === 0) return;
    const scratch = this.scratchFor(scratchBytes);
    this.write(words);
    this.start(kernel, units, unitBytes, scratch);
  }

  /** Starts a kernel whose words are written. */
  private start(kernel: number, units: number, unitBytes: number, scratch: number): void {
    if (this.pool.threads === 1 || units === 1 || units * unitBytes < WORTH_THREADS) {
      this.kernels.run(kernel, ARGS, 0, units, scratch);
      return;
    }
    const even = Math.ceil(units / (4 * this.pool.threads));
    const chunk = Math.max(1, Math.min(even, Math.ceil(CHUNK_BYTES / unitBytes)), Math.ceil(units / MAX_CHUNKS));
    this.pool.run(kernel, ARGS, units, chunk);
  }

  private write(words: readonly number[]): void {
    const view = this.words();
    for (let i = 0; i < words.length; i++) view[i] = words[i]!; // set() of a list costs ten times as much
  }

  private words(): Int32Array<ArrayBufferLike> {
    const buffer = this.memory.buffer as ArrayBuffer;
    if (this.wordsView?.buffer !== buffer) {
      this.wordsView = new Int32Array(buffer, ARGS, ARGS_WORDS);
      this.realsView = new Float32Array(buffer, ARGS, ARGS_WORDS);
    }
    return this.wordsView;
  }

  /** Scratch memory of at least `bytes` for each thread; the host's address. It grows to what the largest job needs and stays. */
  private scratchFor(bytes: number): number {
    if (bytes > this.scratchBytes) {
      const each = Math.ceil(bytes / 4096) * 4096;
      if (this.scratch) this.memory.free(this.scratch);
      this.scratch = undefined;
      this.scratchBytes = 0;
      this.scratch = this.memory.take(each * this.pool.threads);
      this.scratchBytes = each;
      this.pool.setScratch(this.scratch.address, each);
    }
    return this.scratch?.address ?? 0;
  }

  /** The address of a plan's table, uploaded at its first use and kept while it is used. */
  private table(values: Float32Array | Float64Array | Int32Array): number {
    const bytes = values.length * 4;
    const block = this.tables.get(values, bytes, () => {
      const taken = this.memory.take(bytes);
      const Array_ = values instanceof Int32Array ? Int32Array : Float32Array;
      new Array_(this.memory.buffer as ArrayBuffer, taken.address, values.length).set(values);
      return taken;
    });
    return block.address;
  }

  /** A vector as dense f32: where it lies, or widened for this call. */
  private denseF32(vector: Tensor, operands: Operands): number {
    const address = operands.address(vector);
    if (vector.dtype === 'f32' && isRowMajor(vector)) return address;
    const n = vector.size;
    const to = operands.temporary(n * 4);
    this.launch(KERNEL.widenRows, n === 0 ? 0 : 1, n * 4, [
      address,
      to,
      TYPE[vector.dtype]!,
      n,
      vector.strides[0]!,
      ...[0, 0, 0, 0],
      1,
      ...[1, 0],
    ]);
    return to;
  }

  /** Indices in the backend's memory until the end of the call. */
  private copyIn(indices: Int32Array | Float64Array, operands: Operands): number {
    const address = operands.temporary(indices.length * 4);
    new Int32Array(this.memory.buffer, address, indices.length).set(indices);
    return address;
  }

  private elementwise(kernel: number, a: Tensor, b: Tensor, { out }: AddPlan | SwigluPlan, operands: Operands): void {
    operands.bring([a, b], [out]);
    if (out.size === 0) return;
    const { dims, strides } = joinDims([out, a, b]);
    const [outs, as, bs] = strides as [number[], number[], number[]];
    const n = dims.pop()!;
    const inner = [as.pop()!, bs.pop()!, outs.pop()!];
    const unit = sizeBytes(out.dtype);
    const block = Math.min(n, CHUNK_BYTES / 4);
    const units = countElements(dims) * Math.ceil(n / block);
    const head = [
      operands.address(a),
      operands.address(b),
      operands.address(out),
      TYPE[out.dtype]!,
      n,
      block,
      ...inner,
    ];
    // An exponential is worth about twenty bytes moved.
    const cost = block * (3 * unit + (kernel === KERNEL.swiglu ? 20 : 0));
    this.launch(kernel, units, cost, [...head, dims.length, ...dims, ...as, ...bs, ...outs]);
  }

  private rearrange({ x, out }: RearrangePlan, operands: Operands): void {
    operands.bring([x], [out]);
    if (out.size === 0) return;
    const { dims, strides } = joinDims([out, x]);
    const [outs, xs] = strides as [number[], number[]];
    const n = dims.pop()!;
    const outStride = outs.pop()!;
    const xStride = xs.pop()!;
    if (x.dtype !== out.dtype) {
      const block = Math.min(n, CONVERT_BLOCK);
      const head = [
        operands.address(x),
        operands.address(out),
        TYPE[x.dtype]!,
        TYPE[out.dtype]!,
        n,
        block,
        xStride,
        outStride,
        0,
      ];
      const units = countElements(dims) * Math.ceil(n / block);
      const cost = block * (sizeBytes(x.dtype) + sizeBytes(out.dtype));
      this.launch(KERNEL.convert, units, cost, [...head, dims.length, ...dims, ...xs, ...outs], block * 4);
      return;
    }
    // The rows of a plane: the dimension along which x is densest, so that a tile reads whole cache lines.
    let rows = 1;
    let xRow = 0;
    let outRow = 0;
    if (dims.length > 0) {
      let row = 0;
      for (let d = 1; d < dims.length; d++) if (Math.abs(xs[d]!) < Math.abs(xs[row]!)) row = d;
      [rows, xRow, outRow] = [dims[row]!, xs[row]!, outs[row]!];
      for (const list of [dims, xs, outs]) list.splice(row, 1);
    }
    const unit = sizeBytes(out.dtype);
    // A plane too large for one unit is cut into bands of rows.
    const band = Math.max(1, Math.min(rows, Math.ceil(CHUNK_BYTES / (n * unit))));
    const whole = Math.floor(rows / band);
    const planes = (firstRow: number, count: number, rowsEach: number): void => {
      const words = [n, xStride, outStride, rowsEach, xRow, outRow, dims.length + 1];
      const from = operands.address(x) + firstRow * xRow * unit;
      const to = operands.address(out) + firstRow * outRow * unit;
      const units = countElements(dims) * count;
      const sizes = [...dims, count];
      this.launch(KERNEL.rearrange, units, 2 * rowsEach * n * unit, [
        ...[from, to, unit],
        ...words,
        ...sizes,
        ...[...xs, xRow * rowsEach],
        ...[...outs, outRow * rowsEach],
      ]);
    };
    planes(0, whole, band);
    if (whole * band < rows) planes(whole * band, 1, rows - whole * band);
  }

  private embedding({ rows, weight, out }: EmbeddingPlan, operands: Operands): void {
    const table = isBlocks(weight) ? weight.bytes : weight;
    operands.bring([table], [out]);
    if (out.size === 0) return;
    const index = this.copyIn(rows, operands);
    const width = weight.shape[1]!;
    const from = isBlocks(weight) ? [rowBytesOf(weight), 0] : weight.strides;
    const words = (how: number) => [
      operands.address(table),
      operands.address(out),
      index,
      how,
      width,
      ...from,
      ...out.strides,
    ];
    const unit = sizeBytes(out.dtype);
    if (!isBlocks(weight) && weight.dtype === out.dtype)
      this.launch(KERNEL.embedding, rows.length, 2 * width * unit, words(unit));
    else {
      const type = TYPE[isBlocks(weight) ? weight.format : weight.dtype]!;
      this.launch(KERNEL.embeddingWide, rows.length, 2 * width * unit, words(type), width * 4);
    }
  }

  private argmax({ values, outIndex, outValue }: ArgmaxPlan, operands: Operands): void {
    operands.bring([values], [outIndex, outValue]);
    if (outIndex.size === 0) return;
    const { dims, strides } = rowsOf([values, outIndex, outValue]);
    const n = values.shape.at(-1)!;
    const head = [
      operands.address(values),
      operands.address(outIndex),
      operands.address(outValue),
      TYPE[values.dtype]!,
      n,
    ];
    const words = [
      ...head,
      values.strides.at(-1)!,
      sizeBytes(outIndex.dtype),
      0,
      0,
      dims.length,
      ...dims,
      ...strides.flat(),
    ];
    this.launch(KERNEL.argmax, countElements(dims), n * sizeBytes(values.dtype), words);
  }

  private rmsNorm({ x, weight, eps, out }: RmsNormPlan, operands: Operands): void {
    operands.bring([x, weight], [out]);
    if (out.size === 0) return;
    const n = x.shape.at(-1)!;
    const gain = this.denseF32(weight, operands);
    const { dims, strides } = rowsOf([x, out]);
    const [low, high] = float64Words(eps);
    const head = [
      operands.address(x),
      operands.address(out),
      gain,
      TYPE[x.dtype]!,
      n,
      low,
      high,
      x.strides.at(-1)!,
      out.strides.at(-1)!,
    ];
    this.launch(
      KERNEL.rmsNorm,
      countElements(dims),
      3 * n * 4,
      [...head, dims.length, ...dims, ...strides.flat()],
      n * 4,
    );
  }

  private rope({ plan, parts }: RopeCall, operands: Operands): void {
    const inputs: Tensor[] = [];
    const outputs: Tensor[] = [];
    for (const { x, out, norm } of parts) {
      inputs.push(x);
      outputs.push(out);
      if (norm) inputs.push(norm.weight);
    }
    operands.bring(inputs, outputs);
    const [batch, seq] = parts[0]!.x.shape as [number, number];
    if (batch * seq === 0) return;
    if (ROPE_HEAD + ROPE_PART * parts.length > ARGS_WORDS)
      refuse('UNSUPPORTED', 'cpu: rope: parts', 'at most 852', parts.length);
    const { table, read, write } = plan;
    // What launches a job of its own or takes memory comes first: the words are all written together, at the end.
    const gains = parts.map(({ norm }) => (norm ? this.denseF32(norm.weight, operands) : 0));
    const rowsAt = parts.map(({ rows }) => (rows ? this.copyIn(rows, operands) : 0));
    const [cos, sin, tableRows] = [this.table(table.cos), this.table(table.sin), this.table(plan.tableRows)];
    const scratch = this.scratchFor(4 * plan.headDim * 4);
    const words = this.words();
    words[0] = cos;
    words[1] = sin;
    words[2] = tableRows;
    words[3] = plan.batch === undefined ? 0 : 1;
    words[4] = seq;
    words[5] = plan.headDim;
    words[6] = plan.rotaryOffset;
    words[7] = table.pairs;
    words[8] = read.step;
    words[9] = read.gap;
    words[10] = write.step;
    words[11] = write.gap;
    words[12] = parts.length;
    words[13] = batch * seq;
    let bytes = 0;
    for (let p = 0; p < parts.length; p++) {
      const { x, out, norm } = parts[p]!;
      const at = ROPE_HEAD + ROPE_PART * p;
      words[at] = operands.address(x);
      words[at + 1] = operands.address(out);
      words[at + 2] = TYPE[x.dtype]!;
      words[at + 3] = TYPE[out.dtype]!;
      words[at + 4] = x.shape[2]!;
      for (let d = 0; d < 4; d++) {
        words[at + 5 + d] = x.strides[d]!;
        words[at + 9 + d] = out.strides[d]!;
      }
      words[at + 13] = rowsAt[p]!;
      words[at + 14] = gains[p]!;
      words[at + 15] = x.strides[3] === 1 && out.strides[3] === 1 && x.dtype === out.dtype && !norm ? 1 : 0;
      const [low, high] = float64Words(norm?.eps ?? 0);
      words[at + 16] = low;
      words[at + 17] = high;
      bytes += x.shape[2]! * plan.headDim * (sizeBytes(x.dtype) + sizeBytes(out.dtype));
    }
    this.start(KERNEL.rope, batch * seq, bytes, scratch);
  }

  private linear({ x, weight, bias, out, m, n, k }: LinearPlan, operands: Operands): void {
    const blocks = isBlocks(weight);
    const matrix = blocks ? weight.bytes : weight;
    operands.bring([x, matrix, ...(bias ? [bias] : [])], [out]);
    if (out.size === 0) return;
    const type = TYPE[blocks ? weight.format : weight.dtype]!;
    const { dims, strides } = rowsOf([x, out]);
    const [xRows, outRows] = strides as [number[], number[]];
    const xStride = x.strides.at(-1)!;
    const biasAt = bias ? operands.address(bias) : 0;
    const biasType = bias ? TYPE[bias.dtype]! : 0;
    const few = blocks ? FEW_ROWS_OF_BLOCKS : FEW_ROWS;
    if (m <= few && (blocks || weight.strides[1] === 1 || k <= 1)) {
      const rowBytes = blocks ? rowBytesOf(weight) : weight.strides[0]! * sizeBytes(weight.dtype);
      let from = operands.address(x);
      if (x.dtype !== 'f32' || !isRowMajor(x)) {
        const to = operands.temporary(m * k * 4);
        const head = [from, to, TYPE[x.dtype]!, k, xStride, 0, 0, 0, 0, dims.length];
        this.launch(KERNEL.widenRows, m, 2 * k * 4, [...head, ...dims, ...xRows]);
        from = to;
      }
      const head = [
        from,
        operands.address(matrix),
        biasAt,
        operands.address(out),
        type,
        TYPE[out.dtype]!,
        m,
        k,
        rowBytes,
      ];
      const layout = [dims.length, out.strides.at(-1)!, bias?.strides[0] ?? 0, biasType];
      if (blocks) {
        const split = operands.temporary(m * splitRowBytes(k));
        this.launch(KERNEL.splitRows, m, k * 8, [from, split, k]);
        const cost = Math.max(rowBytes, m * k * BYTES_PER_MADD);
        this.launch(KERNEL.linearBlocks, Math.ceil(n / 2), 2 * cost, [
          ...head,
          ...layout,
          n,
          split,
          ...dims,
          ...outRows,
        ]);
        return;
      }
      this.launch(KERNEL.linearFew, n, Math.max(Math.abs(rowBytes), m * k * BYTES_PER_MADD), [
        ...head,
        ...layout,
        ...dims,
        ...outRows,
      ]);
      return;
    }
    // Rows of x in even blocks, each packed once and multiplied with all of W.
    const count = Math.ceil(m / BLOCK_ROWS);
    const rows = Math.ceil(m / count / this.tileRows) * this.tileRows;
    const packed = operands.temporary(rows * k * 4);
    const scratch = (KC * NC + rows * NC) * 4;
    const rowStride = blocks ? rowBytesOf(weight) : weight.strides[0]!;
    for (let row = 0; row < m; row += rows) {
      const here = Math.min(rows, m - row);
      const head = [operands.address(x), packed, TYPE[x.dtype]!, k, xStride, row, here, 0, 0, dims.length];
      this.launch(KERNEL.packRows, Math.ceil(here / this.tileRows), this.tileRows * k * 8, [
        ...head,
        ...dims,
        ...xRows,
      ]);
      const words = [
        packed,
        operands.address(matrix),
        biasAt,
        operands.address(out),
        type,
        TYPE[out.dtype]!,
        here,
        k,
        n,
      ];
      const layout = [
        rowStride,
        blocks ? 0 : weight.strides[1]!,
        out.strides.at(-1)!,
        bias?.strides[0] ?? 0,
        row,
        dims.length,
        biasType,
      ];
      const cost = here * NC * k * BYTES_PER_MADD;
      this.launch(KERNEL.linearMany, Math.ceil(n / NC), cost, [...words, ...layout, ...dims, ...outRows], scratch);
    }
  }

  private selfAttention(plan: SelfAttentionPlan, operands: Operands): void {
    const { q, k, v, out } = plan;
    operands.bring([q, k, v], [out]);
    if (out.size === 0) return;
    const [batch, seq, heads, d] = q.shape as [number, number, number, number];
    const [, total, kvHeads] = k.shape as [number, number, number];
    const dv = v.shape[3]!;
    const group = heads / kvHeads;
    const few = seq * group <= FEW_QUERIES && k.strides[3] === 1 && v.strides[3] === 1;
    const tokens = Math.max(1, Math.min(seq, Math.floor(QUERY_ROWS / group)));
    const blocks = Math.ceil(seq / tokens);
    const words = [
      ...[
        operands.address(q),
        operands.address(k),
        operands.address(v),
        operands.address(out),
        TYPE[q.dtype]!,
        seq,
        total,
        kvHeads,
        group,
      ],
      ...[d, dv, 0, plan.causal ? 1 : 0, plan.window ?? 0, 0, tokens, blocks],
      ...q.strides,
      ...k.strides,
      ...v.strides,
      ...out.strides,
      TYPE[k.dtype]!,
    ];
    const rows = (few ? seq : tokens) * group;
    const fours = Math.ceil(rows / 4);
    const panels = Math.ceil(rows / NR);
    const values = Math.ceil(dv / this.tileRows) * this.tileRows;
    const scratch = few
      ? 4 * (fours * 4 * (d + dv) + values * KEYS) + KEYS * 16 + fours * 64
      : 4 * (panels * d * NR + KEYS * d + values * KEYS + KEYS * NR + panels * values * NR) + panels * 128;
    const at = this.scratchFor(scratch);
    this.write(words);
    this.realsView![11] = plan.scale;
    this.realsView![14] = plan.softcap ?? 0;
    const cost = few ? total * (d + dv) * sizeBytes(k.dtype) : (rows * total * (d + dv) * BYTES_PER_MADD) / 2;
    this.start(few ? KERNEL.attentionFew : KERNEL.attentionMany, batch * kvHeads * (few ? 1 : blocks), cost, at);
  }

  private checkOpen(): void {
    if (this.closed)
      refuse(
        'DEVICE',
        'cpu',
        'an open backend',
        'one that was disposed',
        'Open another: await ropewalk({ backend: "cpu" }).',
      );
  }
}

/** Bytes of a row of blocks. */
function rowBytesOf({ format, shape }: BlockTensor): number {
  return (shape[1] / BLOCK_WEIGHTS) * BLOCK_BYTES[format];
}

const float64 = new Float64Array(1);
const halves = new Int32Array(float64.buffer);

/** The bits of a float64 as two words, low first. */
function float64Words(value: number): [low: number, high: number] {
  float64[0] = value;
  return [halves[0]!, halves[1]!];
}

/**
 * Opens the CPU backend.
 *
 * @param options - threads, memory and module
 * @param float64 - runs plans that f32 cannot do; without it they are refused
 * @throws {RopewalkError} RANGE for a bad option; DEVICE when no memory can be had
 */
export async function openCpu(options: BackendOptions = {}, float64?: (plan: OpPlan) => void): Promise<CpuBackend> {
  const { threads: wanted, memoryLimit, simd = 'auto' } = options;
  if (wanted !== undefined && (!Number.isInteger(wanted) || wanted < 1))
    refuse('RANGE', 'cpu: threads', 'an integer >= 1', wanted);
  if (simd !== 'auto' && simd !== 'simd128') refuse('UNSUPPORTED', 'cpu: simd', 'auto or simd128', simd);
  const { threads, whyNot } = threadsHere(wanted);
  const shared = threads > 1;
  const { module, simd: chosen, whyNotRelaxed } = await compileKernels(shared, simd);
  const home = new WasmMemory(shared, HEAP, memoryLimit);
  const kernels = (await WebAssembly.instantiate(module, { env: { memory: home.memory } }))
    .exports as unknown as Kernels;
  new Int32Array(home.buffer, BOARD, BOARD_WORDS).fill(0);
  const pool = new Pool({ kernels, module, memory: home.memory, board: BOARD, threads });
  await pool.tryOne();
  const notTaken = [whyNotRelaxed, whyNot].filter((reason) => reason !== undefined);
  return new CpuBackend(home, kernels, pool, { simd: chosen, notTaken }, float64);
}
