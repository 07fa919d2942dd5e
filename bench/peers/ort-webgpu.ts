/**
 * ONNX Runtime's WebGPU execution provider as a peer: its native build runs in Node, its WebAssembly build in a page.
 *
 * @module
 */
import { newArray } from 'ropewalk/backend';
import { encodeModel, type GraphTensor, type PeerGraph } from './graph.js';
import { type OrtModule, type OrtSession, type OrtTensor, type OrtTensors, ortTensor } from './ort-module.js';
import type { Peer } from './peer.js';

type Moved = Pick<GraphTensor, 'dtype' | 'dims'>;

/**
 * Makes a peer that reads from the GPU's memory and writes to it, as Ropewalk does.
 *
 * @param ort - the loaded package
 * @param version - the name and version of the package
 */
export async function openOrtWebgpu(ort: OrtModule, version: string): Promise<Peer> {
  const create = (graph: PeerGraph, output: 'cpu' | 'gpu-buffer'): Promise<OrtSession> =>
    ort.InferenceSession.create(encodeModel(graph), {
      executionProviders: ['webgpu'],
      preferredOutputLocation: output,
      graphOptimizationLevel: 'all',
      logSeverityLevel: 4, // the report shows its errors
      // Without this the CPU would compute the operators that the GPU lacks.
      extra: { session: { disable_cpu_ep_fallback: '1' } },
    });
  // An identity graph moves data to and from the GPU's memory, because Node's build has no other way.
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
  // All sessions share one queue, so when this last run is back, all earlier runs are done.
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
          // Integers are parameters of the computation, so the runtime decides where they are stored.
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
