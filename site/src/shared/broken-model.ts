/** Runs a model with a RoPE kernel that has a known bug. A worker and the build use it. @module */
import { MUTANTS } from '@ropewalk/diagnose';
import { runMutant } from '@ropewalk/diagnose/internal';
import { generate, loadModel, type ModelFiles } from '@ropewalk/model';
import { type Backend, bindRope, openCpu, planRope, type RopeCall, type RopeSpec, tensorFrom, zeros } from 'ropewalk';

/** The files of the model that are read. */
export const MODEL_FILES = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'] as const;
/** The bug with which Home opens. */
export const FIRST_BUG = 'pairs-interleaved-for-half';
/** The words that the model continues. */
export const PROMPT = '"Where is the whale?" said the captain.';
/** The model's rotation, as its config.json has it. */
export const MODEL_ROPE = { headDim: 32, pairing: 'half', base: 10000 } as const;

/** Runs a call as a kernel with the bug, which computes its own table, and not with the table that the model has made. */
function runBroken(id: string, call: RopeCall): void {
  const mutant = MUTANTS.find((one) => one.id === id);
  if (mutant === undefined) throw new Error(`${id} is no known bug. The museum lists them.`);
  runMutant(mutant, call);
}

/** A model that continues {@link PROMPT} greedily, with the right kernel or with a bug. */
export interface Writer {
  /** @param bug - the id of a known bug; undefined writes with the right kernel */
  write(bug?: string): AsyncGenerator<string>;
  dispose(): void;
}

/** Room for the prompt and what follows. */
const CONTEXT = 256;

/**
 * Loads a model whose rotation can be broken.
 *
 * @param files - by name, such as {@link MODEL_FILES}
 * @param onProgress - called with the share of the weights that is loaded
 */
export async function openWriter(files: ModelFiles, onProgress?: (share: number) => void): Promise<Writer> {
  const cpu = await openCpu({ threads: 1 });
  let broken: { readonly bug: string; readonly rope: RopeSpec } | undefined;
  const backend: Backend = {
    name: cpu.name,
    capabilities: () => cpu.capabilities(),
    whyNot: (plan) => cpu.whyNot(plan),
    allocate: (dtype, shape) => cpu.allocate(dtype, shape),
    upload: (source) => cpu.upload(source),
    finish: () => cpu.finish(),
    dispose: () => cpu.dispose(),
    run(plan) {
      if (plan.op !== 'rope' || broken === undefined) return cpu.run(plan);
      const positions = Array.from(plan.plan.tableRows);
      runBroken(broken.bug, { ...plan, plan: planRope({ ...broken.rope, positions, seqLen: positions.length }) });
    },
  };
  const model = await loadModel(files, {
    backend,
    context: (config) => Math.min(CONTEXT, config.maxContext),
    ...(onProgress && { onProgress: ({ doneBytes, totalBytes }) => onProgress(doneBytes / totalBytes) }),
  }).catch((error) => {
    backend.dispose();
    throw error;
  });
  const { rope } = model.config.layers(CONTEXT).find((layer) => layer.rope)!;
  return {
    async *write(bug) {
      broken = bug === undefined ? undefined : { bug, rope: rope! };
      for await (const { text } of generate(model, PROMPT, { maxTokens: 60, temperature: 0 })) yield text;
    },
    dispose() {
      model.dispose();
      backend.dispose();
    },
  };
}

/**
 * Rotates a head with a bug. There are a token before and one after it, and another head, as some bugs mix them up.
 *
 * @param x - the head, `[head_dim]`
 * @returns the head's output, `[head_dim]`
 */
export function brokenHead(bug: string, x: Float64Array, position: number): Float64Array {
  const first = Math.max(0, position - 1);
  const shape = [3, 2, x.length];
  const all = Float64Array.from({ length: 6 * x.length }, (_, n) => {
    const i = n % x.length;
    return n % (2 * x.length) < x.length ? x[i]! : x[x.length - 1 - i]!;
  });
  const plan = planRope({ ...MODEL_ROPE, headDim: x.length, positions: [first, first + 1, first + 2], seqLen: 3 });
  const out = zeros('f64', shape);
  runBroken(bug, bindRope(plan, tensorFrom(all, { shape }), out));
  const from = (position - first) * 2 * x.length;
  return out.storage.host!.slice(from, from + x.length);
}
