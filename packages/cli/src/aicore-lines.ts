/** The messages between the command and the process of a kernel: lines of JSON. @module */
import type { KernelDeclaration, MeasuredKernel, MeasureOptions, OperatorCall } from '@ropewalk/ascend';
import type { RopewalkError } from 'ropewalk';

/** The description of a kernel before it runs. */
export type Declared = Pick<KernelDeclaration, 'name' | 'operator' | 'dtypes'>;

/** The report of a kernel, and its AscendC source if it was asked for, or why there is none. */
export interface RanKernel {
  readonly measured: MeasuredKernel;
  readonly source?: string;
  readonly noSource?: string;
}

/** The messages to the process, each one line of JSON. */
export type ToKernel =
  | { readonly kind: 'load'; readonly given: string; readonly path: string; readonly source: string }
  /** The file that the process asked for, or the reason why it does not get it. */
  | { readonly kind: 'file'; readonly path: string; readonly source: string }
  | { readonly kind: 'noFile'; readonly message: string }
  | { readonly kind: 'run'; readonly call: OperatorCall; readonly how: MeasureOptions; readonly emit: boolean };

/** The messages of the process, each one line of JSON. */
export type FromKernel =
  /** The process starts to load the file or to run the kernel. The time limit counts from here. */
  | { readonly kind: 'begun' }
  /** The kernel imports a file. */
  | { readonly kind: 'want'; readonly specifier: string; readonly from: string }
  | { readonly kind: 'declared'; readonly declared: Declared }
  | { readonly kind: 'log'; readonly text: string }
  | { readonly kind: 'block'; readonly done: number; readonly total: number }
  | ({ readonly kind: 'measured' } & RanKernel)
  /** `code` is set when ropewalk refused something before the kernel ran; `syntax` names a file with a syntax error. */
  | {
      readonly kind: 'failed';
      readonly message: string;
      readonly code?: RopewalkError['code'];
      readonly syntax?: string;
    };

/** Writes NaN and infinities, which JSON lacks and results of kernels have, as texts. */
export function toLine(message: ToKernel | FromKernel): string {
  const numbers = (_: string, value: unknown): unknown =>
    typeof value === 'number' && !Number.isFinite(value) ? { number: String(value) } : value;
  return `${JSON.stringify(message, numbers)}\n`;
}

/** @throws {SyntaxError} where the line is no JSON */
export function fromLine(line: string): unknown {
  return JSON.parse(line, (_, value) =>
    typeof value === 'object' && typeof value?.number === 'string' ? Number(value.number) : value,
  );
}
