/**
 * ONNX Runtime's WebGPU execution provider as a peer: that of its native build in Node, that of its WebAssembly build
 * in a page.
 *
 * @module
 */
import { newArray } from 'ropewalk/backend';
import { encodeModel, type GraphTensor, type PeerGraph } from './graph.js';
import { type OrtModule, type OrtSession, type OrtTensor, type OrtTensors, ortTensor } from './ort-module.js';
import type { Peer } from './peer.js';

type Moved = Pick<GraphTensor, 'dtype' | 'dims'>;

/**
 * Makes a peer whose runs read from the GPU's memory and write to it, as ours do.
 *
 * @param ort - the loaded package
 * @param version - its name and version
 */
export async function openOrtWebgpu(ort: OrtModule, version: string): Promise<Peer> {
  const create = (graph: PeerGraph, output: 'cpu' | 'gpu-buffer'): Promise<OrtSession> =>
    ort.InferenceSession.create(encodeModel(graph), {
      executionProviders: ['webgpu'],
      preferredOutputLocation: output,
      graphOptimizationLevel: 'all',
      logSeverityLevel: 4, // what it cannot do is in the report
      // Otherwise the CPU would compute what the GPU cannot.
      extra: { session: { disable_cpu_ep_fallback: '1' } },
    });
  // The way in and out of the GPU's memory that Node's build has too.
  const identity = ({ dtype, dims }: Moved, output: 'cpu' | 'gpu-buffer'): Promise<OrtSession> => {
    const nodes = [{ op: 'Identity', inputs: ['x'], outputs: ['y'] }];
    const value = { dtype: dtype as 'f32', dims };
    return create(
      {
        name: 'Identity',
        nodes,
        inputs: [{ name: 'x', ...value, data: new Float32Array() }],
        output: { name: 'y', ...value },
      },
      output,
    );
  };
  // All sessions share a queue: what comes back last was queued last.
  const one = { dtype: 'f32', dims: [1] } as const;
  const fence = await identity(one, 'cpu');
  const token = ortTensor(ort, { ...one, data: newArray('f32', 1) });
  return {
    name: 'ort-webgpu',
    version,
    takes: ({ substitute }) => !substitute,
    async open(graph) {
      const sessions: OrtSession[] = [];
      const feeds: OrtTensors = {};
      let last: OrtTensors = {};
      const kept = async (session: Promise<OrtSession>): Promise<OrtSession> => {
        sessions.push(await session);
        return session;
      };
      const close = async (): Promise<void> => {
        for (const tensor of [...Object.values(feeds), ...Object.values(last)]) tensor.dispose();
        for (const session of sessions) await session.release();
      };
      try {
        const session = await kept(create(graph, 'gpu-buffer'));
        for (const input of graph.inputs) {
          const tensor = ortTensor(ort, input);
          // Integers say how to compute; the runtime decides where they are.
          const moves = input.dtype === 'f32' || input.dtype === 'f16';
          feeds[input.name] = moves
            ? (await (await kept(identity(input, 'gpu-buffer'))).run({ x: tensor })).y!
            : tensor;
        }
        const { name, dtype, dims } = graph.output;
        return {
          async run() {
            for (const tensor of Object.values(last)) tensor.dispose();
            last = await session.run(feeds);
          },
          async finish() {
            await fence.run({ x: token });
          },
          async output() {
            const back: OrtTensor = (await (await kept(identity({ dtype, dims }, 'cpu'))).run({ x: last[name]! })).y!;
            return back.data;
          },
          close,
        };
      } catch (reason) {
        await close();
        throw reason;
      }
    },
  };
}
