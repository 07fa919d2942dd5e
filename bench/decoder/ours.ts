/**
 * Ropewalk as a contender on its own kernels, in Node and in a page, with the time of each operator.
 *
 * @module
 */
import type { Ropewalk } from 'ropewalk';
import type { Activations } from 'ropewalk/internal';
import type { Contender, Prompt, Sample, Setup } from './contender.js';
import { createSampler, loadModel, type Model, type ModelFiles, ropewalk } from './library.js';
import { weightsRead } from './weights-read.js';

/** Ropewalk with a loaded model. */
export interface Ours extends Contender {
  readonly model: Model;
  /** Runs a prompt and some steps, and times every operator. */
  profile(prompt: Prompt, steps: number): Promise<{ prefill: Profile; decode: Profile }>;
}

/** The time of a phase, by operator. */
export interface Profile {
  readonly tokens: number;
  readonly ms: number;
  /**
   * The operators, the slowest first. The rest of `ms` is JavaScript between them: it makes plans, samples, and copies
   * the logits out.
   */
  readonly operators: readonly OperatorTime[];
}

/** The total of all calls of an operator. */
export interface OperatorTime {
  /** The name of the operator. For linear and expert_linear it also has the shape of the weight. */
  readonly name: string;
  readonly calls: number;
  readonly ms: number;
  /** The bytes of weights that linear layers read, counted once a call. Only the chosen experts count. */
  readonly weightBytes: number;
  /** The number of multiplications and additions of linear and expert_linear. */
  readonly flops: number;
}

/**
 * Loads a model on the cpu backend.
 *
 * @param files - the files that loadModel takes
 * @param setup - the threads and the length of the context
 * @param activations - `q8` rounds activations to 8 bits, as llama.cpp does
 */
export async function openOurs(
  files: ModelFiles,
  { threads, context }: Setup,
  activations: Activations = 'f32',
): Promise<Ours> {
  const rw = await ropewalk({ backend: 'cpu', threads });
  const model = await loadModel(files, { backend: rw, context, activations });
  const { description, notTaken } = rw.capabilities();
  const { run, close } = runnerOf(model);
  return {
    name: activations === 'q8' ? 'ropewalk, q8' : 'ropewalk',
    setup: `${[description, ...notTaken].join('; ')}; KV cache f32`,
    model,
    run,
    async profile(prompt, steps) {
      const clock = new OperatorClock(rw);
      try {
        let prefill: readonly OperatorTime[] = [];
        const sample = await run(prompt, steps, () => {
          prefill = clock.take();
        });
        return {
          prefill: { tokens: prompt.tokens.length, ms: sample.prefillMs, operators: prefill },
          decode: { tokens: steps, ms: sample.decodeMs, operators: clock.take() },
        };
      } finally {
        clock.stop();
      }
    },
    close() {
      close();
      rw.dispose();
    },
  };
}

/** Returns the function that runs a model on any engine. */
export function runnerOf(model: Model) {
  const sampler = createSampler({ temperature: 0 });
  const session = model.openSession();
  return {
    async run(prompt: Prompt, steps: number, afterPrefill: () => void = () => {}): Promise<Sample> {
      session.truncate(0);
      const tokens: number[] = [];
      const start = performance.now();
      tokens.push(sampler.pick(await session.append(prompt.tokens), tokens));
      const first = performance.now();
      afterPrefill();
      for (let step = 0; step < steps; step++)
        tokens.push(sampler.pick(await session.append(tokens.slice(-1)), tokens));
      return { prefillMs: first - start, decodeMs: performance.now() - first, tokens };
    },
    close(): void {
      session.dispose();
      model.dispose();
    },
  };
}

/** Times every operator. This works on cpu, where a plan is complete when `run` returns. */
class OperatorClock {
  private times = new Map<string, { -readonly [K in keyof OperatorTime]: OperatorTime[K] }>();

  constructor(private readonly rw: Ropewalk) {
    const run = rw.run.bind(rw);
    rw.run = (plan) => {
      const start = performance.now();
      run(plan);
      const ms = performance.now() - start;
      const read = weightsRead(plan);
      const name = read?.name ?? plan.op;
      const time = this.times.get(name) ?? { name, calls: 0, ms: 0, weightBytes: 0, flops: 0 };
      time.calls++;
      time.ms += ms;
      time.weightBytes += read?.bytes ?? 0;
      time.flops += read?.flops ?? 0;
      this.times.set(name, time);
    };
  }

  /** Returns the times since the previous call. */
  take(): OperatorTime[] {
    const times = [...this.times.values()].sort((a, b) => b.ms - a.ms);
    this.times = new Map();
    return times;
  }

  stop(): void {
    delete (this.rw as { run?: unknown }).run; // this uncovers the method of the class
  }
}
