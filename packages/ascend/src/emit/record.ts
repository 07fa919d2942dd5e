/**
 * Records the calls that a kernel makes: which buffers it has, and each block's instructions, folded into loops.
 *
 * A call is told by what is the same each time: its name, its statement, its variables, counts and parameters. Its
 * numbers that may differ, such as indices, are kept for every time that it ran, with the values that the kernel had read
 * until then. @module
 */
import { sizeBytes } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type AscendC, type LaneType, LocalTensor, type TBuf, type TQue } from '../ascendc.js';
import { GlobalTensor } from '../memory.js';

/** A C++ variable: a tensor, or a value that the kernel reads. */
export interface Variable {
  readonly id: number;
  /** The text that its name is made from. */
  readonly stem: string;
  readonly type: LaneType | 'i32' | 'count';
  /** The TBuf that it is all of. */
  readonly buffer?: string;
  /** The tensor that it holds now, or the value. */
  current?: number;
}

/** An operand in the unified buffer; its first element is among the call's numbers. */
export interface Operand {
  readonly variable: Variable;
  readonly type: LaneType;
}

/** One call of a kernel: the same statement with the same variables, counts and parameters. */
export interface Call {
  readonly name: string;
  readonly line: string;
  /** The queue of AllocTensor, EnQue, DeQue and FreeTensor. */
  readonly queue?: string;
  readonly operands: readonly Operand[];
  readonly global?: string;
  /** The arguments that are no tensor and no number below. */
  readonly rest: readonly unknown[];
  /** The variable that it sets. */
  readonly sets?: Variable;
  /** The names of the numbers that may differ: one offset for each operand, then these. */
  readonly numbers: readonly string[];
}

/** A call with its place among all calls, its numbers, and the values read before it, for each time that it ran. */
export interface RecordedCall {
  readonly shape: number;
  readonly call: Call;
  readonly times: { readonly place: number; readonly numbers: readonly number[]; readonly read: readonly number[] }[];
}

/** A call or a loop. Equal shapes are the same calls. */
export type Node = RecordedCall | { readonly shape: number; readonly count: number; readonly body: readonly Node[] };

export interface RecordedBuffer {
  readonly name: string;
  readonly position?: 'VECIN' | 'VECOUT';
  readonly num: number;
  readonly bytes: number;
}

/** The most calls of a recording, and the longest body of a loop that is looked for. */
const MAX_CALLS = 2 ** 20;
const MAX_BODY = 256;

/** Calls that hold numbers which may differ, by their place behind the statement; the other numbers are the call's own. */
const NUMBERS: { readonly [name: string]: { readonly [at: number]: string } } = {
  GetGlobal: { 1: 'index' },
  DataCopyIn: { 2: 'index' },
  DataCopyPadIn: { 2: 'index' },
  DataCopyPadOut: { 1: 'index' },
  DataCopyOut: { 1: 'index' },
  Muls: { 2: 'scalar' },
  Maxs: { 2: 'scalar' },
  Adds: { 2: 'scalar' },
  Duplicate: { 1: 'scalar' },
  GetValue: { 1: 'index' },
  SetValue: { 1: 'index', 2: 'value' },
};
const METHODS = [
  ...['GetGlobal', 'DataCopyIn', 'DataCopyOut', 'DataCopyPadIn', 'DataCopyPadOut', 'MergeValues', 'Mul', 'Add', 'Sub'],
  ...['Div', 'Max', 'Abs', 'Exp', 'Sqrt', 'Rsqrt', 'Reciprocal', 'WholeReduceSum', 'WholeReduceMax', 'Muls', 'Maxs'],
  ...['Adds', 'Copy', 'Duplicate', 'Cast', 'GatherMask', 'Gather', 'PipeBarrier', 'SetFlag', 'WaitFlag'],
] as const;

/** Records every block of one kernel, in one or several launches. */
export class Recorder {
  /** The calls by what is the same each time, each with the number of its shape. */
  readonly #calls = new Map<string, { readonly call: Call; readonly shape: number }>();
  readonly #loops = new Map<string, number>();
  readonly #variables = new Map<string, Variable>();
  /** The variables that hold values, in the order of `read`. */
  readonly values: Variable[] = [];
  readonly #tensors = new WeakMap<LocalTensor, { variable: Variable; serial: number; byte: number }>();
  readonly #roles = new Map<GlobalTensor, string>();
  #shapes = 0;
  #serial = 0;
  #recorded = 0;

  /** @param names - the kernel's name of each role, as in its declaration */
  constructor(readonly names: { readonly [name: string]: string }) {}

  /** Tells the recorder the tensors of a launch, by role. */
  bind(tensors: { readonly [role: string]: GlobalTensor }): void {
    this.#roles.clear();
    for (const [name, role] of Object.entries(this.names)) this.#roles.set(tensors[role]!, name);
  }

  /** Watches the calls of one block. @returns its buffers and its program, which grow as the kernel runs */
  watch(c: AscendC): { readonly buffers: RecordedBuffer[]; readonly program: Node[] } {
    const buffers: RecordedBuffer[] = [];
    const program: Node[] = [];
    for (const variable of this.#variables.values()) variable.current = undefined;
    let inside = false;
    /** Runs a call, and records it if the kernel made it and not another call. */
    const record = <T>(run: () => T, write: (result: T) => void): T => {
      if (inside) return run();
      inside = true;
      try {
        const result = run();
        if (++this.#recorded > MAX_CALLS) {
          const what = `the kernel makes more than ${MAX_CALLS} calls. Give a smaller --shape.`;
          fail('UNSUPPORTED', 'aicore: emit', what);
        }
        write(result);
        return result;
      } finally {
        inside = false;
      }
    };
    const watchTensor = (tensor: LocalTensor, variable: Variable, serial: number, byte: number): LocalTensor => {
      this.#tensors.set(tensor, { variable, serial, byte });
      const { at, as, GetValue, SetValue } = tensor;
      const own = {
        at: (elements: number) =>
          watchTensor(at.call(tensor, elements), variable, serial, byte + elements * sizeBytes(tensor.type)),
        as: (type: LaneType) => watchTensor(as.call(tensor, type), variable, serial, byte),
        GetValue: (line: string, index: number) =>
          record(
            () => GetValue.call(tensor, line, index),
            (value) => this.#add(program, 'GetValue', line, [tensor, index], { type: tensor.type, value }),
          ),
        SetValue: (line: string, index: number, value: number) =>
          record(
            () => SetValue.call(tensor, line, index, value),
            () => this.#add(program, 'SetValue', line, [tensor, index, value]),
          ),
      };
      return Object.assign(tensor, own);
    };
    const { pipe } = c;
    const { InitBuffer, InitTBuf } = pipe;
    const watchQueue = (name: string, queue: TQue): TQue => {
      const take = (kind: 'AllocTensor' | 'DeQue') => (line: string, type: LaneType) =>
        record(
          () => Object.getPrototypeOf(queue)[kind].call(queue, line, type) as LocalTensor,
          (tensor) => {
            const serial = ++this.#serial;
            const stem = `${name}_${kind === 'DeQue' ? 'deque' : 'alloc'}`;
            const sets = this.#add(program, kind, line, [type], { type, value: serial, stem, queue: name });
            watchTensor(tensor, sets!, serial, 0);
          },
        );
      const give = (kind: 'EnQue' | 'FreeTensor') => (line: string, tensor: LocalTensor) =>
        record(
          () => Object.getPrototypeOf(queue)[kind].call(queue, line, tensor),
          () => void this.#add(program, kind, line, [tensor], { queue: name }),
        );
      const own = { AllocTensor: take('AllocTensor'), DeQue: take('DeQue') };
      return Object.assign(queue, own, { EnQue: give('EnQue'), FreeTensor: give('FreeTensor') });
    };
    Object.assign(pipe, {
      InitBuffer(name: string, position: 'VECIN' | 'VECOUT', num: number, bytes: number) {
        const queue = InitBuffer.call(pipe, name, position, num, bytes);
        buffers.push({ name, position, num, bytes });
        return watchQueue(name, queue);
      },
      InitTBuf: (name: string, bytes: number): TBuf => {
        const buffer = InitTBuf.call(pipe, name, bytes);
        buffers.push({ name, num: 1, bytes });
        const { Get } = buffer;
        const whole = (type: LaneType) => {
          const variable = this.#variable(`${name} ${type}`, { stem: `${name}_all`, type, buffer: name });
          variable.current = 0;
          return watchTensor(Get.call(buffer, type), variable, 0, 0);
        };
        return Object.assign(buffer, { Get: whole });
      },
    });
    for (const name of METHODS) {
      const method = c[name] as (...args: unknown[]) => unknown;
      const hasLine = name !== 'PipeBarrier' && name !== 'SetFlag';
      const watched = (...args: unknown[]): unknown =>
        record(
          () => Reflect.apply(method, c, args),
          (value) => {
            const [line, rest] = hasLine ? [args[0] as string, args.slice(1)] : ['', args];
            const type = name === 'GetGlobal' ? ('i32' as const) : ('count' as const);
            this.#add(program, name, line, rest, typeof value === 'number' ? { type, value } : undefined);
          },
        );
      Object.defineProperty(c, name, { value: watched });
    }
    return { buffers, program };
  }

  #variable(key: string, made: Omit<Variable, 'id'>): Variable {
    const variable = this.#variables.get(key) ?? { ...made, id: this.#variables.size };
    this.#variables.set(key, variable);
    return variable;
  }

  /** Adds a call to a program. @returns the variable that it sets */
  #add(
    program: Node[],
    name: string,
    line: string,
    args: readonly unknown[],
    how: { type?: Variable['type']; value?: number; stem?: string; queue?: string } = {},
  ): Variable | undefined {
    const { type, value, stem, queue } = how;
    const operands: Operand[] = [];
    const offsets: number[] = [];
    const numbers: number[] = [];
    const named: string[] = [];
    const rest: unknown[] = [];
    let global: string | undefined;
    for (const [at, argument] of args.entries()) {
      const locals = Array.isArray(argument) ? argument : [argument];
      const number = NUMBERS[name]?.[at];
      if (locals[0] instanceof LocalTensor)
        for (const tensor of locals as LocalTensor[]) {
          const known = this.#tensors.get(tensor)!;
          if (known.variable.current !== known.serial)
            fail('UNSUPPORTED', 'aicore: emit', `${line}: a later call of the statement that made its tensor has run.`);
          operands.push({ variable: known.variable, type: tensor.type });
          offsets.push(known.byte / sizeBytes(tensor.type));
        }
      else if (argument instanceof GlobalTensor) global = this.#roles.get(argument) ?? argument.name;
      else if (number !== undefined) {
        numbers.push(argument as number);
        named.push(number);
      } else rest.push(argument);
    }
    const same = (_: string, one: unknown) => (typeof one === 'bigint' ? `${one}n` : one);
    const of = operands.map((one) => `${one.variable.id} ${one.type}`);
    const key = JSON.stringify([name, line, queue, of, global, rest], same);
    let known = this.#calls.get(key);
    if (!known) {
      const sets =
        type &&
        this.#variable(key, {
          stem: stem ?? `${global ?? operands[0]?.variable.stem}_${type === 'count' ? 'kept' : 'value'}`,
          type,
        });
      if (sets && stem === undefined) this.values.push(sets);
      const call: Call = { name, line, queue, operands, global, rest, sets, numbers: named };
      known = { call, shape: ++this.#shapes };
      this.#calls.set(key, known);
    }
    const { call, shape } = known;
    const read = this.values.map(({ current }) => current ?? Number.NaN);
    program.push({ shape, call, times: [{ place: this.#recorded, numbers: [...offsets, ...numbers], read }] });
    if (call.sets) call.sets.current = value;
    this.#fold(program);
    return call.sets;
  }

  /** Joins the end of a program with the same calls before it. */
  #fold(program: Node[]): void {
    for (let length = 1; length <= MAX_BODY && length < program.length; length++) {
      const end = program.length - length;
      const before = program[end - 1]!;
      const last = program.at(-1)!.shape;
      const sameAs = (nodes: readonly Node[]): boolean =>
        nodes.every(({ shape }, n) => program[end + n]!.shape === shape);
      const again = 'body' in before && before.body.length === length && before.body.at(-1)!.shape === last;
      if (again && sameAs(before.body)) {
        const body = joined(before.body, program.splice(end));
        program[end - 1] = this.#loop(before.count + 1, body);
      } else if (end >= length && before.shape === last && sameAs(program.slice(end - length, end))) {
        const more = program.splice(end);
        program.push(this.#loop(2, joined(program.splice(end - length), more)));
      } else continue;
      length = 0;
    }
  }

  #loop(count: number, body: readonly Node[]): Node {
    const key = `${count}: ${body.map(({ shape }) => shape)}`;
    const shape = this.#loops.get(key) ?? ++this.#shapes;
    this.#loops.set(key, shape);
    return { shape, count, body };
  }
}

/** Joins nodes of the same shapes: those of `more` ran later. */
export function joined(nodes: readonly Node[], more: readonly Node[]): Node[] {
  return nodes.map((node, n) => {
    const other = more[n]!;
    if ('body' in node) return { ...node, body: joined(node.body, (other as typeof node).body) };
    for (const time of (other as typeof node).times) node.times.push(time);
    return node;
  });
}
