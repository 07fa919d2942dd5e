/**
 * Finds WebNN and tests a context. Limits alone do not prove that it computes, so a probe graph is built and run.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { firstLine } from '../backend/queue.js';
import type { MlContext, MlLimits, MlSupport, Webnn } from './api.js';

/** A context that has run a probe graph. */
export interface OpenContext {
  readonly webnn: Webnn;
  readonly context: MlContext;
  readonly limits: MlLimits;
  /** The devices that ran the probe graph; empty if the browser does not tell. */
  readonly devices: readonly string[];
}

const FLAG = 'open it in Chrome or Edge with chrome://flags/#web-machine-learning-neural-network enabled';

/** Returns WebNN of this page or worker, or the reason why there is none. */
function find(): Webnn | string {
  const { navigator, MLGraphBuilder, isSecureContext } = globalThis as {
    navigator?: { ml?: Webnn['ml'] };
    MLGraphBuilder?: Webnn['MLGraphBuilder'];
    isSecureContext?: boolean;
  };
  const { process } = globalThis as { process?: { versions?: { node?: string } } };
  if (process?.versions?.node !== undefined) return 'WebNN runs in browsers, and this is Node';
  const ml = navigator?.ml;
  if (typeof ml?.createContext === 'function' && MLGraphBuilder) return { ml, MLGraphBuilder };
  if (isSecureContext === false)
    return `this page has no navigator.ml, as it is not a secure context. Serve it over https or from localhost, and ${FLAG}`;
  return `this browser has no navigator.ml: ${FLAG}`;
}

/** The operators of our graphs, with a dtype and a rank that each must take in one place. */
const REQUIRED: Readonly<Record<string, readonly [place: string, dtype: string, rank: number]>> =
  /* @__PURE__ */ Object.freeze({
    add: ['a', 'float32', 4],
    concat: ['inputs', 'float32', 4],
    gather: ['indices', 'int32', 1],
    gemm: ['a', 'float32', 2],
    input: ['', 'int32', 2],
    matmul: ['a', 'float32', 4],
    mul: ['a', 'float32', 4],
    reduceMean: ['input', 'float32', 4],
    reshape: ['input', 'float32', 4],
    scatterND: ['input', 'float32', 2],
    slice: ['input', 'float32', 4],
    softmax: ['input', 'float32', 4],
    where: ['trueValue', 'float32', 4],
  });

/** Returns the limits of an operator in one place. */
export function supportOf(limits: MlLimits, op: string, place: string): MlSupport | undefined {
  const entry = limits[op] as Record<string, MlSupport> | undefined;
  return place === '' ? (entry as MlSupport | undefined) : entry?.[place];
}

/** Returns the first operator that a context lacks, if there is one. */
export function whatLacks(limits: MlLimits): string | undefined {
  for (const [op, [place, dtype, rank]] of Object.entries(REQUIRED)) {
    const found = supportOf(limits, op, place);
    if (!found?.dataTypes.includes(dtype)) return `${op} of ${dtype}`;
    const { min, max } = found.rankRange ?? { min: rank, max: rank };
    if (rank < min || rank > max) return `${op} of ${rank} dimensions`;
  }
  return undefined;
}

/**
 * Opens a context and runs a graph on it.
 *
 * @throws {RopewalkError} DEVICE with the reason and the next step
 */
export async function openContext(powerPreference: string | undefined): Promise<OpenContext> {
  const webnn = find();
  if (typeof webnn === 'string') fail('DEVICE', 'webnn', `${webnn}.`);
  const options = powerPreference === undefined ? {} : { powerPreference };
  const create = (): Promise<MlContext> => webnn.ml.createContext(options);
  try {
    // After a crash of the GPU process, the service may still be starting again.
    const context = await create().catch((error: unknown) => {
      if (/connection error/i.test(String(error))) return create();
      throw error;
    });
    const limits = context.opSupportLimits();
    const lack = whatLacks(limits);
    if (lack !== undefined) {
      context.destroy();
      fail('DEVICE', 'webnn', `this browser's WebNN lacks ${lack}, which the operators need. Use webgpu or cpu.`);
    }
    return { webnn, context, limits, devices: await probe(webnn, context) };
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    throw new RopewalkError('DEVICE', `webnn: ${firstLine(cause)}. ${nextStep(cause)}`, { cause });
  }
}

function nextStep(cause: unknown): string {
  const text = String(cause);
  if (/disabled/i.test(text)) return 'The browser has given up on WebNN after crashes: restart it.';
  if (/not supported/i.test(text)) return 'This build of the browser computes nothing with WebNN: use webgpu or cpu.';
  return 'Open the backend again, or use webgpu or cpu.';
}

/** Builds and runs 1 + 2, and returns the devices that ran it. */
async function probe({ MLGraphBuilder }: Webnn, context: MlContext): Promise<readonly string[]> {
  const descriptor = { dataType: 'float32', shape: [1] } as const;
  const builder = new MLGraphBuilder(context);
  const x = builder.input('x', descriptor);
  const graph = await builder.build({ y: builder.add(x, builder.constant(descriptor, Float32Array.of(2))) });
  const [from, to] = await Promise.all(
    ['x', 'y'].map(() => context.createTensor({ ...descriptor, readable: true, writable: true })),
  );
  context.writeTensor(from!, Float32Array.of(1));
  context.dispatch(graph, { x: from! }, { y: to! });
  const [sum] = new Float32Array(await context.readTensor(to!));
  if (sum !== 3) fail('DEVICE', 'webnn', `a graph that adds 1 and 2 gave ${sum}. Use webgpu or cpu.`);
  const { devices = [] } = graph;
  for (const made of [from!, to!, graph]) made.destroy();
  return devices;
}

/**
 * Returns why WebNN cannot be used here, or undefined if a context opens and computes.
 *
 * @example const why = await whyNotWebnn(); // 'this browser has no navigator.ml: …'
 */
export async function whyNotWebnn(): Promise<string | undefined> {
  try {
    (await openContext(undefined)).context.destroy();
    return undefined;
  } catch (error) {
    return (error as RopewalkError).message.replace(/^webnn: /, '');
  }
}
