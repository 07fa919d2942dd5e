/** The interface to our kernels, or to another program that computes a model. Callers check arguments. @module */
import { fail, refuse } from 'ropewalk/backend';
import { fieldsOf } from './arguments.js';
import type { ModelDescription } from './description.js';
import type { MemoryLimits } from './memory.js';
import type { LoadProgress } from './stream-weight.js';
import type { ModelMemory, SessionOptions } from './types.js';

/** Runs models, for `loadModel(files, { engine })`. */
export interface Engine {
  readonly name: string;
  /**
   * Plans a model's weights in the formats that the engine takes (planModel), and checks that it can run the model. No
   * weight is read yet.
   *
   * @throws {RopewalkError} UNSUPPORTED for a model or a type of weights that it does not run
   */
  open(description: ModelDescription): Promise<EngineModel>;
}

/** A model in an engine. Its owner disposes it, whatever has failed. */
export interface EngineModel {
  /** What runs it, as `Model.backend` says it. */
  readonly name: string;
  /** The memory that the model and one session take. @throws {RopewalkError} UNSUPPORTED for a session that it cannot open */
  memoryOf(session: Required<SessionOptions>): ModelMemory;
  /** The memory that there is. @param machineBytes - what the machine can give, where that is known */
  limits(machineBytes: (() => number | undefined) | undefined): MemoryLimits;
  /** Bytes of {@link ModelMemory.scratchBytes} that are allocated now. */
  readonly scratchBytes: number;
  /** Reads the weights into memory. @param session - the usual one; others may come */
  load(session: Required<SessionOptions>, options: LoadingOptions): Promise<void>;
  /** Starts a sequence of tokens; weights are loaded. @throws {RopewalkError} DEVICE when memory is full */
  openSequence(session: Required<SessionOptions>): Sequence;
  dispose(): void;
}

/** How weights are loaded. */
export interface LoadingOptions {
  /** Ends loading with the signal's reason. */
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: LoadProgress) => void) | undefined;
}

/** What a run of tokens is to give: nothing, the logits of the last or of all tokens, or all hidden states. */
export type Wanted = 'none' | 'last' | 'all' | 'hidden';

/** Tokens in order, with their keys and values. Calls come one after the other, with arguments that are checked. */
export interface Sequence {
  /** Tokens whose keys and values are there. The session also lowers it: what was behind is gone. */
  length: number;
  /** The most tokens of one run: a signal is heard between runs. */
  readonly chunkTokens: number;
  /**
   * Appends tokens; {@link length} grows by them.
   *
   * @param tokens - `[t]`, 1 <= t <= chunkTokens; there is room for them
   * @param positions - `[axes, t]`, row by row; unless given the tokens follow those before
   * @param result - takes what is wanted: `[vocab]`, `[t, vocab]` or `[t, hidden]`, or nothing; elements behind it stay
   */
  run(tokens: Int32Array, positions: Int32Array | undefined, wanted: Wanted, result: Float32Array): Promise<unknown>;
  /** Drops tokens [from, from + count); later keys are rotated back by `count` positions. */
  shift(from: number, count: number): Promise<void>;
  dispose(): void;
}

/**
 * @param others - options of our kernels, none of which goes with another engine
 * @throws {RopewalkError} RANGE for anything but an engine, or with such an option
 */
export function checkEngine(engine: Engine, others: object, where: string): void {
  const { name, open } = fieldsOf<Engine>(engine, where, 'name', 'open');
  if (typeof name !== 'string' || typeof open !== 'function')
    refuse('RANGE', `${where}: engine`, 'an engine, such as openOnnxEngine() of @ropewalk/onnx/node', engine);
  for (const [option, value] of Object.entries(others))
    if (value !== undefined)
      fail('RANGE', `${where}: ${option}`, `it is an option of our kernels, and the engine ${name} has its own.`);
}
