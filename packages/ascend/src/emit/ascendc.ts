/**
 * Writes AscendC out of a kernel: the C++ source of what it did for one call, and the functions that launch it.
 *
 * The kernel runs twice on the model, with other data each time, and its calls are recorded. Loops are runs of the same
 * calls; an index is a sum of whole multiples of the block's number, the loops' counters and values that the kernel
 * read. What is not such a sum, or depends on data in another way, is refused. @module
 */
import { numberFromBf16, numberFromF16 } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { randomFrom } from 'ropewalk/internal';
import type { KernelDeclaration } from '../kernels/declaration.js';
import { makeCall, type OperatorCall } from '../kernels/operators.js';
import { launchDeclared } from '../kernels/run.js';
import type { MeasureOptions } from '../measure.js';
import type { GlobalTensor } from '../memory.js';
import type { KernelRun } from '../trace.js';
import { identifier, literal, sumInWords, typeOf } from './cpp.js';
import { type Feature, fit } from './fit.js';
import { hostSource } from './host.js';
import {
  type Call,
  joined,
  type Node,
  type Operand,
  type RecordedBuffer,
  type RecordedCall,
  Recorder,
  type Variable,
} from './record.js';

/** The most statements of a source. More are calls whose loop is not known. */
const MAX_STATEMENTS = 1000;
/** The most groups of blocks that do the same, such as all but the last, and the last. */
const MAX_GROUPS = 4;

function refused(line: string, why: string): never {
  return fail('UNSUPPORTED', 'aicore: emit', `${line}: ${why}`);
}

/** One block's program, in each of the launches. */
interface Block {
  readonly buffers: readonly RecordedBuffer[];
  readonly program: readonly Node[];
}

/** A launch that was recorded. */
interface Launch {
  readonly blocks: readonly Block[];
  readonly run: KernelRun;
  readonly tensors: { readonly [role: string]: GlobalTensor };
  readonly facts: object;
}

/** A line of C++. */
export interface SourceLine {
  readonly text: string;
  /** The call on this line: the kernel's statement, as a timeline names it, and its place among all calls each time. */
  readonly call?: { readonly statement: string; readonly places: readonly number[] };
}

/**
 * @param kernel - the kernel
 * @param call - its one call: shapes and strides become constants of the source
 * @param how - the tiling and the chip
 * @returns a C++ file, which nobody has compiled with CANN
 * @throws {RopewalkError} UNSUPPORTED, naming the statement that cannot be written
 */
export function emitAscendc(kernel: KernelDeclaration, call: OperatorCall, how: MeasureOptions = {}): string {
  const { lines, facts, parameters, blocks, findings } = classOf(kernel, call, how);
  return [
    `// Not compiled by us with CANN. Written by ropewalk aicore --emit ascendc: ${oneLine(kernel.name)}, ${kernel.operator}`,
    `// [${call.shape.join(', ')}] ${call.dtype} on ${blocks} blocks. Sizes and strides of this call are constants.`,
    ...(kernel.autoSync === false ? ['// It sets its own flags: compile without automatic synchronisation.'] : []),
    ...(findings > 0
      ? ['// The model reports faults of this kernel, which are in the source too: ropewalk aicore lists them.']
      : []),
    '#include <cmath>',
    '#include <cstddef>',
    '#include "acl/acl.h"',
    '#include "kernel_operator.h"',
    'using namespace AscendC;',
    '',
    ...lines.map(({ text }) => text),
    '',
    ...hostSource({ kernel, call, parameters, blocks, facts }),
    '',
  ].join('\n');
}

/**
 * Writes the class of {@link emitAscendc} with what block 0 does, whatever the other blocks do.
 *
 * @throws {RopewalkError} as emitAscendc
 */
export function sourceOfBlock0(
  kernel: KernelDeclaration,
  call: OperatorCall,
  how: MeasureOptions = {},
): readonly SourceLine[] {
  return classOf(kernel, call, how, true).lines;
}

/** Records a kernel, and writes its class. */
function classOf(kernel: KernelDeclaration, call: OperatorCall, how: MeasureOptions, block0 = false) {
  const recorder = new Recorder(kernel.arguments);
  const launches = [1, 2].map((seed) => launch(kernel, call, how, recorder, seed, block0));
  const [first, again] = launches as [Launch, Launch];
  const shapes = ({ buffers, program }: Block): string => JSON.stringify([buffers, program.map(({ shape }) => shape)]);
  for (const [n, block] of first.blocks.entries())
    if (shapes(block) !== shapes(again.blocks[n]!)) refused(`block ${n}`, 'what it calls depends on the data.');
  const { buffers } = first.blocks[0] ?? refused(kernel.name, 'it launches no block.');
  if (first.blocks.some((block) => JSON.stringify(block.buffers) !== JSON.stringify(buffers)))
    refused('InitBuffer', 'its blocks have different buffers.');
  const names = new Names(buffers);
  const parameters = Object.entries(kernel.arguments).map(([own, role]) => {
    return { name: names.parameter(own), role, tensor: first.tensors[role]! };
  });
  const groups = groupsOf(launches, shapes);
  const heads = (first.facts as { heads?: number }).heads ?? 0;
  if (groups.length > MAX_GROUPS) {
    const many = `its ${first.run.blockCount} blocks do ${groups.length} different things, one after the other.`;
    refused(kernel.name, `${many} Give a --shape or --blocks with which all blocks do the same.`);
  }
  const writer = new Writer(names, recorder.values, heads);
  const bodies = groups.map(({ from, to, program }) => {
    const lines = writer.write(program, from, to, groups.length > 1 ? 3 : 2, first.run.blockCount);
    if (groups.length === 1) return lines;
    const which = from === to ? `block == ${from}` : `block >= ${from} && block <= ${to}`;
    return [`    if (${which}) {`, ...lines, '    }'];
  });
  const lines: (string | SourceLine)[] = [
    'class Kernel {',
    'public:',
    `  __aicore__ inline void Init(${parameters.map(({ name }) => `GM_ADDR ${name}`).join(', ')}) {`,
    ...parameters.map(({ name, tensor }) => {
      const at = `reinterpret_cast<__gm__ ${typeOf(tensor.dtype)} *>(${name})`;
      return `    ${name}_gm.SetGlobalBuffer(${at});`;
    }),
    ...buffers.map(({ name, position, num, bytes }) =>
      position
        ? `    pipe.InitBuffer(${names.of(name)}, ${num}, ${bytes});`
        : `    pipe.InitBuffer(${names.of(name)}, ${bytes});`,
    ),
    '  }',
    '',
    block0 ? '  __aicore__ inline void Process() { // of block 0' : '  __aicore__ inline void Process() {',
    ...(block0 ? [] : ['    const int64_t block = GetBlockIdx();']),
    ...writer.declarations(),
    ...bodies.flat(),
    '  }',
    '',
    'private:',
    '  TPipe pipe;',
    ...buffers.map(({ name, position, num }) => {
      const type = position ? `TQue<QuePosition::${position}, ${num}>` : 'TBuf<TPosition::VECCALC>';
      return `  ${type} ${names.of(name)};`;
    }),
    ...parameters.map(({ name, tensor }) => `  GlobalTensor<${typeOf(tensor.dtype)}> ${name}_gm;`),
    '};',
  ];
  return {
    lines: lines.map((line) => (typeof line === 'string' ? { text: line } : line)),
    facts: first.facts,
    parameters,
    blocks: first.run.blockCount,
    findings: first.run.findings.length,
  };
}

const oneLine = (text: string): string => text.replace(/[\r\n\\]+/g, ' ');

/** Runs a kernel with data of a seed, and records its calls; with `block0` only those of block 0. */
function launch(
  kernel: KernelDeclaration,
  call: OperatorCall,
  { chip, cores, tiling }: MeasureOptions,
  recorder: Recorder,
  seed: number,
  block0: boolean,
): Launch {
  const random = randomFrom(`emit ${seed}`);
  // A position follows from no token's number, and differs between the launches.
  const tableLen = Math.max(call.tableLen ?? 0, 3 * (call.shape[0]! + (call.shape[1] ?? 0)) + 7);
  const { call: bound } = makeCall(kernel.operator, { ...call, tableLen }, random).bind();
  const { tensors, facts } = bound;
  const { positions, sin } = tensors;
  if (positions && sin) {
    const { bytes } = positions.memory;
    const rows = sin.high / (facts as { half: number }).half;
    const at = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (rows < 4) refused('positions', `they have only ${rows} rows of the tables. Give a --shape with more tokens.`);
    const { integer } = randomFrom('emit positions');
    for (let n = 0; n < bytes.length; n += 4) at.setInt32(n, (integer(rows) + seed * (1 + (n % 3))) % rows, true);
  }
  recorder.bind(tensors);
  const blocks: Block[] = [];
  const watched: KernelDeclaration = {
    ...kernel,
    kernel: (c, args) => {
      if (block0 && c.GetBlockIdx() > 0) return;
      blocks[c.GetBlockIdx()] = recorder.watch(c);
      kernel.kernel(c, args);
    },
  };
  const run = launchDeclared(watched, bound, { machine: { chip, cores }, tiling });
  if (run.outcome !== 'ended') refused(kernel.name, `on the model it has the outcome "${run.outcome}". Mend it first.`);
  return { blocks, run, tensors, facts };
}

/** Joins neighbours that make the same calls. A call's times are those of each block, one launch after the other. */
function groupsOf(launches: readonly Launch[], shapes: (block: Block) => string) {
  const groups: { from: number; to: number; key: string; program: Node[] }[] = [];
  for (const [n, block] of launches[0]!.blocks.entries()) {
    const program = launches.map(({ blocks }) => blocks[n]!.program).reduce<Node[]>(joined, empty(block.program));
    const last = groups.at(-1);
    if (last?.key === shapes(block)) {
      last.program = joined(last.program, program);
      last.to = n;
    } else groups.push({ from: n, to: n, key: shapes(block), program });
  }
  return groups;
}

/** The same program, as if it had never run. */
const empty = (nodes: readonly Node[]): Node[] =>
  nodes.map((node) => ('body' in node ? { ...node, body: empty(node.body) } : { ...node, times: [] }));

/** The words of C++ and of our lines, which no name of a kernel may be. */
const RESERVED =
  'and asm auto bool break case char class const constexpr continue decltype default delete do double else enum explicit extern false float for friend goto half if inline int long mutable namespace new not nullptr operator or private protected public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while block pipe mask j kernel Kernel Init Process device host size stream status memory n table_len'.split(
    ' ',
  );

/** Names of C++ for the kernel's own, each used once. */
class Names {
  readonly #taken = new Set(RESERVED);
  readonly #buffers = new Map<string, string>();
  readonly #variables = new Map<Variable, string>();
  readonly #parameters = new Map<string, string>();

  constructor(buffers: readonly RecordedBuffer[]) {
    // Loop counters, tensors of global memory and AscendC's own functions have such names.
    const isOurs = (name: string): boolean => /^(?:i\d+|[A-Z]\w*|\w+_(?:gm|alloc))$/.test(name);
    for (const { name } of buffers) this.#buffers.set(name, this.fresh(isOurs(name) ? `${name}_queue` : name));
  }

  fresh(stem: string): string {
    const plain = identifier(stem);
    let name = plain;
    for (let n = 2; this.#taken.has(name); n++) name = `${plain}${n}`;
    this.#taken.add(name);
    return name;
  }

  /** The name of a tensor of global memory. */
  parameter(name: string): string {
    const known = this.#parameters.get(name) ?? this.fresh(name);
    this.#parameters.set(name, known);
    return known;
  }

  of(buffer: string): string {
    return this.#buffers.get(buffer)!;
  }

  variable(variable: Variable): string {
    const known = this.#variables.get(variable) ?? this.fresh(variable.stem.replace(/^_+/, ''));
    this.#variables.set(variable, known);
    return known;
  }
}

/** Writes the programs of blocks. */
class Writer {
  readonly #whole = new Map<Variable, string>();
  readonly #values = new Map<Variable, string>();
  #statements = 0;
  /** The part of the kernel that the last statement is in: copyIn, compute, … */
  #part = '';

  constructor(
    readonly names: Names,
    readonly values: readonly Variable[],
    readonly heads: number,
  ) {}

  /** The variables of the whole Process. A LocalTensor is a handle, which is set where it is taken. */
  declarations(): string[] {
    const tensors = [...this.#whole].map(([{ type, buffer }, name]) => {
      const get = buffer === undefined ? '' : ` = ${this.names.of(buffer)}.Get<${typeOf(type)}>()`;
      return `    LocalTensor<${typeOf(type)}> ${name}${get};`;
    });
    const type = (variable: Variable): string => (variable.type === 'count' ? 'uint64_t' : typeOf(variable.type));
    return [...tensors, ...[...this.#values].map(([variable, name]) => `    ${type(variable)} ${name} = {};`)];
  }

  /** Writes the program of the blocks `from` to `to`. */
  write(program: readonly Node[], from: number, to: number, depth: number, blocks: number): (string | SourceLine)[] {
    return this.#nodes(program, { from, to, blocks, loops: [] }, depth);
  }

  #nodes(nodes: readonly Node[], where: Where, depth: number): (string | SourceLine)[] {
    const indent = '  '.repeat(depth);
    return nodes.flatMap((node) => {
      if ('body' in node) {
        const counter = `i${where.loops.length}`;
        const loops = [...where.loops, node.count];
        const head = `for (int64_t ${counter} = 0; ${counter} < ${node.count}; ${counter}++) {`;
        return [`${indent}${head}`, ...this.#nodes(node.body, { ...where, loops }, depth + 1), `${indent}}`];
      }
      if (++this.#statements > MAX_STATEMENTS)
        refused(node.call.line, `there are more than ${MAX_STATEMENTS} statements, as its loop is not known.`);
      const named = /^(\w+):/.exec(node.call.line)?.[1] ?? this.#part;
      const comment = named === this.#part ? [] : [`${indent}// ${named}`];
      this.#part = named;
      const { call, times } = node;
      const places = times.slice(0, times.length / 2).map(({ place }) => place); // the other half is of the second launch
      const own = statement(call, this.#expressions(node, where));
      const at = Math.max(
        0,
        own.findIndex((text) => text.trimStart().startsWith(`${call.name}(`)),
      );
      return [
        ...comment,
        ...own.map((text, n) => ({
          text: `${indent}${text}`,
          ...(n === at && { call: { statement: call.line, places } }),
        })),
      ];
    });
  }

  /** The operands and numbers of a call, in C++. */
  #expressions({ call, times }: RecordedCall, where: Where): Expressions {
    const features = this.#features(
      times.map(({ read }) => read),
      where,
    );
    const find = (at: number) =>
      fit(
        times.map(({ numbers }) => numbers[at]!),
        features,
      );
    const operand = ({ variable, type }: Operand, at: number): string => {
      const terms = find(at) ?? refused(call.line, `where its tensor starts is ${NO_SUM}`);
      const whole = this.#tensor(variable);
      const typed = variable.type === type ? whole : `${whole}.ReinterpretCast<${typeOf(type)}>()`;
      return terms.length === 0 ? typed : `${typed}[${sumInWords(terms)}]`;
    };
    const locals = call.operands.map(operand);
    const number = (name: string, n: number): string => {
      const at = locals.length + n;
      const numbers = times.map((time) => time.numbers[at]!);
      const bits = name === 'value' ? call.operands[0]!.type : undefined;
      const decode = bits === 'f16' ? numberFromF16 : bits === 'bf16' ? numberFromBf16 : (value: number) => value;
      const whole = name === 'index' || bits === 'u16' || bits === 'u32' || call.operands[0]?.type === 'u32';
      if (!whole) {
        for (const sign of [1, -1]) {
          const read = this.values.findLastIndex((_, v) =>
            times.every((time, t) => time.read[v] === sign * numbers[t]!),
          );
          const value = this.values[read];
          if (!value || bits !== (bits && value.type) || (bits && sign < 0)) continue;
          return `${sign < 0 ? '-' : ''}${this.#value(value)}`;
        }
        if (numbers.every((value) => Object.is(value, numbers[0]))) return literal(decode(numbers[0]!));
      }
      const terms = whole ? find(at) : undefined;
      return terms ? sumInWords(terms) : refused(call.line, `its ${name} is ${NO_SUM}`);
    };
    const sets = call.sets && (call.queue ? this.#tensor(call.sets) : this.#value(call.sets));
    const queue = call.queue === undefined ? '' : this.names.of(call.queue);
    return {
      locals,
      numbers: call.numbers.map(number),
      global: call.global === undefined ? '' : `${this.names.parameter(call.global)}_gm`,
      sets,
      queue,
    };
  }

  /** The quantities that an index may follow from, in each of the times that a call ran. */
  #features(read: readonly (readonly number[])[], { from, to, blocks, loops }: Where): Feature[] {
    const inBlock = loops.reduce((product, count) => product * count, 1);
    const block = read.map((_, time) => from + Math.floor(time / inBlock / 2));
    const features: Feature[] = [];
    if (to > from) features.push({ text: 'block', values: block });
    for (const [v, variable] of this.values.entries()) {
      const values = read.map((values) => values[v] ?? Number.NaN);
      // The model reads f16 and bf16 as their bits.
      const isNumber = variable.type !== 'f16' && variable.type !== 'bf16';
      if (isNumber && values.every(Number.isInteger)) features.push({ text: this.#value(variable, 'int64_t'), values });
    }
    const { heads } = this;
    /** A counter of rows: each token has a row for each head. */
    const ofRows = (name: string, values: readonly number[]): Feature[] => [
      { text: `(${name} / ${heads})`, values: values.map((n) => Math.floor(n / heads)) },
      { text: `(${name} % ${heads})`, values: values.map((n) => n % heads) },
    ];
    let below = inBlock;
    for (const [n, count] of loops.entries()) {
      below /= count;
      const size = below;
      const counter = read.map((_, time) => Math.floor(time / size) % count);
      features.push({ text: `i${n}`, values: counter }, { text: `(i${n} / 2)`, values: counter.map((i) => i >> 1) });
      if (heads > 1 && count > heads) features.push(...ofRows(`i${n}`, counter));
    }
    if (heads > 1 && blocks > heads) features.push(...ofRows('block', block));
    return features;
  }

  #tensor(variable: Variable): string {
    const name = this.names.variable(variable);
    this.#whole.set(variable, name);
    return name;
  }

  #value(variable: Variable, as?: string): string {
    const name = this.names.variable(variable);
    this.#values.set(variable, name);
    return as ? `${as}(${name})` : name;
  }
}

const NO_SUM = 'no sum of whole multiples of the block, the loops and integers that it reads, or depends on the data.';

/** Where a call is: its blocks, and the counts of the loops around it, from outside in. */
interface Where {
  readonly from: number;
  readonly to: number;
  readonly blocks: number;
  readonly loops: readonly number[];
}

/** The parts of a statement, in C++. */
interface Expressions {
  readonly locals: readonly string[];
  readonly numbers: readonly string[];
  readonly global: string;
  readonly sets: string | undefined;
  readonly queue: string;
}

/** The repeats of a vector instruction, or its count. */
interface Lanes {
  readonly mask: number | readonly [bigint, bigint];
  readonly repeats: number;
  readonly strides: { readonly dst: number; readonly src0: number; readonly src1?: number };
}

/** Writes one call. */
function statement(call: Call, { locals, numbers, global, sets, queue }: Expressions): string[] {
  const { name, operands, rest } = call;
  const [dst, src, third] = locals;
  const [index, value] = numbers;
  const type = operands[0] && typeOf(operands[0].type);
  const copy = (): string => {
    const { blockCount, blockLen, srcStride, dstStride } = rest[0] as Record<string, number>;
    return `DataCopyExtParams{${blockCount}, ${blockLen}, ${srcStride}, ${dstStride}, 0}`;
  };
  switch (name) {
    case 'AllocTensor':
    case 'DeQue':
      return [`${sets} = ${queue}.${name}<${typeOf(call.sets!.type)}>();`];
    case 'EnQue':
    case 'FreeTensor':
      return [`${queue}.${name}(${dst});`];
    case 'GetGlobal':
      return [`${sets} = ${global}.GetValue(${index});`];
    case 'GetValue':
      return [`${sets} = ${dst}.GetValue(${index});`];
    case 'SetValue':
      return [`${dst}.SetValue(${index}, static_cast<${type}>(${value}));`];
    case 'DataCopyIn':
      return [`DataCopy(${dst}, ${global}[${index}], ${rest[0]});`];
    case 'DataCopyOut':
      return [`DataCopy(${global}[${index}], ${dst}, ${rest[0]});`];
    case 'DataCopyPadIn':
      return [`DataCopyPad(${dst}, ${global}[${index}], ${copy()}, DataCopyPadExtParams<${type}>{false, 0, 0, 0});`];
    case 'DataCopyPadOut':
      return [`DataCopyPad(${global}[${index}], ${dst}, ${copy()});`];
    case 'MergeValues': {
      const sources = locals.slice(1);
      const sets = sources.map(
        (source, k) => `  ${dst}.SetValue(j * ${sources.length} + ${k}, ${source}.GetValue(j));`,
      );
      return [`for (uint32_t j = 0; j < ${rest[0]}; j++) {`, ...sets, '}'];
    }
    case 'PipeBarrier':
      return [`PipeBarrier<PIPE_${rest[0]}>();`];
    case 'SetFlag':
    case 'WaitFlag':
      return [`${name}<HardEvent::${rest[0]}_${rest[1]}>(${rest[2]});`];
    case 'Cast': {
      const mode = operands[0]!.type === 'f32' ? 'CAST_NONE' : 'CAST_RINT';
      return [`Cast(${dst}, ${src}, RoundMode::${mode}, ${rest[0]});`];
    }
    case 'Gather':
      return [`Gather(${dst}, ${src}, ${third}, 0u, ${rest[0]});`];
    case 'GatherMask': {
      const custom = third !== undefined;
      const { repeatTimes, src0RepeatStride, src1RepeatStride = 0 } = rest.at(-1) as Record<string, number>;
      const params = `GatherMaskParams{1, ${repeatTimes}, ${src0RepeatStride}, ${src1RepeatStride}}`;
      return [`GatherMask(${dst}, ${src}, ${custom ? third : rest[0]}, false, 0, ${params}, ${sets});`];
    }
    case 'WholeReduceSum':
    case 'WholeReduceMax': {
      const { mask, repeats, dstRepStride, srcRepStride } = rest[0] as Record<string, number>;
      const order = name === 'WholeReduceMax' ? ', ReduceOrder::ORDER_ONLY_VALUE' : '';
      return [`${name}(${dst}, ${src}, ${mask}, ${repeats}, ${dstRepStride}, 1, ${srcRepStride}${order});`];
    }
    case 'Adds':
      if (type === 'uint32_t') {
        const [to, from] = [dst, src].map((one) => `${one}.ReinterpretCast<int32_t>()`);
        return [`Adds(${to}, ${from}, static_cast<int32_t>(${index}), ${rest[0]});`];
      }
  }
  const scalar = index === undefined ? [] : [`static_cast<${type}>(${index})`];
  return overLanes(name, [...locals, ...scalar], operands.length, operands[0]!.type, rest[0] as number | Lanes);
}

/** Writes a vector instruction over its first lanes, or over repeats. */
function overLanes(
  name: string,
  args: readonly string[],
  tensors: number,
  type: string,
  lanes: number | Lanes,
): string[] {
  const list = args.join(', ');
  if (typeof lanes === 'number') {
    if (name !== 'Copy') return [`${name}(${list}, ${lanes});`];
    const full = type === 'f32' || type === 'u32' ? 64 : 128;
    const [whole, more] = [Math.floor(lanes / full), lanes % full];
    const one = (at: number, mask: number, repeats: number): string => {
      const [dst, src] = args.map((arg) => (at === 0 ? arg : `${arg}[${at}]`));
      return `Copy(${dst}, ${src}, ${mask}, ${repeats}, CopyRepeatParams{1, 1, 8, 8});`;
    };
    return [...(whole > 0 ? [one(0, full, whole)] : []), ...(more > 0 ? [one(whole * full, more, 1)] : [])];
  }
  const { mask, repeats, strides } = lanes;
  const { dst, src0, src1 = 0 } = strides;
  const params =
    name === 'Copy'
      ? `CopyRepeatParams{1, 1, ${dst}, ${src0}}`
      : tensors === 3
        ? `BinaryRepeatParams{1, 1, 1, ${dst}, ${src0}, ${src1}}`
        : `UnaryRepeatParams{1, 1, ${dst}, ${src0}}`;
  if (typeof mask === 'number') return [`${name}(${list}, ${mask}, ${repeats}, ${params});`];
  const words = mask.map((word) => `0x${word.toString(16)}ull`).join(', ');
  return ['{', `  uint64_t mask[2] = {${words}};`, `  ${name}(${list}, mask, ${repeats}, ${params});`, '}'];
}
