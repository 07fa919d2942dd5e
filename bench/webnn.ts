/**
 * Measures the webnn backend and the cpu backend in one page.
 *
 * @module
 */

import { FULL_EFFORT, openLibrary, plainCopy, queued, runCases } from '@ropewalk/bench';
import { chooseCases, QUICK_EFFORT, type Rivals, type SessionResult, webnnCases } from '@ropewalk/bench/internal';
import { type Ropewalk, ropewalk } from 'ropewalk';
import type { SessionOptions } from './rivals.js';

/** The part of WebNN's interface that is used here. */
interface MlTensor {
  readonly dataType: string;
  readonly shape: readonly number[];
}
interface MlContext {
  dispatch(graph: object, inputs: Record<string, MlTensor>, outputs: Record<string, MlTensor>): void;
  createTensor(options: MlTensor & { readonly readable: boolean }): Promise<MlTensor>;
  readTensor(tensor: MlTensor): Promise<ArrayBuffer>;
}
interface MlBuilder {
  input(name: string, descriptor: MlTensor): object;
  slice(input: object, starts: readonly number[], sizes: readonly number[]): object;
  build(outputs: Record<string, object>): Promise<object>;
}
interface Globals {
  readonly MLContext: { readonly prototype: MlContext };
  readonly MLGraphBuilder: new (context: MlContext) => MlBuilder;
}

/**
 * Waits until WebNN has computed. WebNN does not say when it has, but a read waits for the computation. So one element
 * of the last output is read.
 */
class Fence {
  #last: { readonly context: MlContext; readonly tensor: MlTensor } | undefined;
  readonly #made = new Map<string, Promise<{ readonly graph: object; readonly one: MlTensor }>>();
  readonly #globals = globalThis as unknown as Globals;

  constructor() {
    const { prototype } = this.#globals.MLContext;
    const { dispatch } = prototype;
    const fence = this;
    prototype.dispatch = function (graph, inputs, outputs): void {
      fence.#last = { context: this, tensor: Object.values(outputs)[0]! };
      dispatch.call(this, graph, inputs, outputs);
    };
  }

  async wait(): Promise<void> {
    const { context, tensor } = this.#last!;
    const key = `${tensor.dataType} ${tensor.shape}`;
    if (!this.#made.has(key)) this.#made.set(key, this.#make(context, tensor));
    const { graph, one } = await this.#made.get(key)!;
    context.dispatch(graph, { x: tensor }, { one });
    await context.readTensor(one);
  }

  async #make(context: MlContext, { dataType, shape }: MlTensor): Promise<{ graph: object; one: MlTensor }> {
    const builder = new this.#globals.MLGraphBuilder(context);
    const ones = shape.map(() => 1);
    const x = builder.input('x', { dataType, shape });
    const graph = await builder.build({
      one: builder.slice(
        x,
        shape.map(() => 0),
        ones,
      ),
    });
    return { graph, one: await context.createTensor({ dataType, shape: ones, readable: true }) };
  }
}

/**
 * Runs the cases on webnn, in turns with cpu on one thread.
 *
 * @param options - the cases, and whether cpu runs too
 * @param where - the browser with its version
 * @param progress - called with the label of each case before it runs
 */
export async function runWebnnSession(
  options: SessionOptions,
  where: string,
  progress: (label: string) => void,
): Promise<SessionResult> {
  const fence = new Fence();
  const rw = await openWebnn();
  const cpu = options.peers.includes('cpu') ? await openLibrary('cpu', 1) : undefined;
  const libraries = { rw, oracle: await openLibrary('reference', 1) };
  const results = await runCases(
    {
      threads: 0,
      libraries,
      effort: options.quick ? QUICK_EFFORT : FULL_EFFORT,
      ...(cpu && {
        async rivals({ prepare }): Promise<Rivals> {
          const own = prepare({ ...libraries, rw: cpu });
          const close = (): void => own.dispose();
          try {
            const { error } = await own.check();
            const result = { peer: 'cpu', graph: 'kernels', error, agrees: true };
            return { rivals: [{ result, contender: { ...own.ours, name: 'cpu' } }], close };
          } catch (reason) {
            close();
            throw reason;
          }
        },
      }),
      timed: (ours) => queued(ours, () => rw.finish().then(() => fence.wait())),
      copy: plainCopy,
    },
    chooseCases(webnnCases(options.quick), options),
    progress,
  );
  const capabilities = rw.capabilities();
  const clock = 'the wall clock, from the first call until an element of the last result is read';
  const peerNotes = cpu ? [`cpu: ${cpu.capabilities().description}`] : [];
  rw.dispose();
  cpu?.dispose();
  return { threads: 0, capabilities, gpu: { where, software: false, clock }, peerNotes, ...results };
}

/** Opens the webnn backend from its built package. */
async function openWebnn(): Promise<Ropewalk> {
  const onnx = new URL('../packages/onnx/dist/index.js', import.meta.url).href;
  const { openWebnn: open }: typeof import('../packages/onnx/src/index.js') = await import(onnx);
  return ropewalk({ backend: await open() });
}
