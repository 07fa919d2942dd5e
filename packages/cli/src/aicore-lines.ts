/** What the command and the process of a kernel say to each other: lines of JSON. @module */
import type { KernelDeclaration, MeasuredKernel, MeasureOptions, OperatorCall } from '@ropewalk/ascend';
import type { RopewalkError } from 'ropewalk';

/** What is known of a kernel before it runs. */
export type Declared = Pick<KernelDeclaration, 'name' | 'operator' | 'dtypes'>;

/** What the process is asked, a line of JSON each. */
export type ToKernel =
  | { readonly kind: 'load'; readonly given: string; readonly path: string; readonly source: string }
  /** A file that was wanted, or why it is not given. */
  | { readonly kind: 'file'; readonly path: string; readonly source: string }
  | { readonly kind: 'noFile'; readonly message: string }
  | { readonly kind: 'run'; readonly call: OperatorCall; readonly how: MeasureOptions };

/** What the process says, a line of JSON each. */
export type FromKernel =
  /** It starts to load the file, or to run the kernel: its time begins. */
  | { readonly kind: 'begun' }
  /** The kernel imports a file. */
  | { readonly kind: 'want'; readonly specifier: string; readonly from: string }
  | { readonly kind: 'declared'; readonly declared: Declared }
  | { readonly kind: 'log'; readonly text: string }
  | { readonly kind: 'block'; readonly done: number; readonly total: number }
  | { readonly kind: 'measured'; readonly measured: MeasuredKernel }
  /** `code` where ropewalk refused something before the kernel ran; `syntax` is a file with a syntax error. */
  | {
      readonly kind: 'failed';
      readonly message: string;
      readonly code?: RopewalkError['code'];
      readonly syntax?: string;
    };

/** JSON has no NaN and no infinities; results of kernels have. */
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
