/** The interface to our kernels, or to another program that computes a model. Callers check arguments. @module */
import { fail, refuse } from 'ropewalk/backend';
import { fieldsOf } from './arguments.js';
import type { ModelDescription } from './description.js';
import type { MemoryLimits } from './memory.js';
import type { LoadProgress } from './stream-weight.js';
import type { ModelMemory, SessionOptions } from './types.js';

/** A program that runs models, for `loadModel(files, { engine })`. */
export interface Engine {
  readonly name: string;
  /**
   * Plans the weights with planModel, in the formats that the engine takes. No weight is read yet.
   *
   * @throws {RopewalkError} UNSUPPORTED for a model or a type of weights that it does not run
   */
  open(description: ModelDescription): Promise<EngineModel>;
}

/** A model in an engine. Its owner disposes it, whatever has failed. */
export interface EngineModel {
  /** The name that the model has as `Model.backend`. */
  readonly name: string;
  /** Sums up the model and one session. @throws {RopewalkError} UNSUPPORTED for a session that it cannot open */
  memoryOf(session: Required<SessionOptions>): ModelMemory;
  /** Returns the limits of memory. @param machineBytes - returns what the machine has left, where that is known */
  limits(machineBytes: (() => number | undefined) | undefined): MemoryLimits;
  /** The part of {@link ModelMemory.scratchBytes} that is allocated now. */
  readonly scratchBytes: number;
  /** Reads the weights into memory. @param session - the options that most sessions will have */
  load(session: Required<SessionOptions>, options: LoadingOptions): Promise<void>;
  /** Starts a sequence of tokens. The weights are loaded by then. @throws {RopewalkError} DEVICE when memory is full */
  openSequence(session: Required<SessionOptions>): Sequence;
  dispose(): void;
}

/** How weights are loaded. */
export interface LoadingOptions {
  /** Ends loading with the signal's reason. */
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: LoadProgress) => void) | undefined;
}

/** The result of a run: nothing, the logits of the last token or of all tokens, or all hidden states. */
export type Wanted = 'none' | 'last' | 'all' | 'hidden';

/** Tokens in order, with their keys and values. Calls come one after the other, and their arguments are checked. */
export interface Sequence {
  /** The number of tokens whose keys and values are there. The session lowers it to remove the last tokens. */
  length: number;
  /** The most tokens of one run. The session checks its signal between runs. */
  readonly chunkTokens: number;
  /**
   * Appends tokens; {@link length} grows by them.
   *
   * @param tokens - `[t]`, 1 <= t <= chunkTokens; there is room for them
   * @param positions - `[axes, t]`, row by row; without them the tokens follow those before
   * @param result - takes the result: `[vocab]`, `[t, vocab]`, `[t, hidden]` or nothing. Elements after it stay
   */
  run(tokens: Int32Array, positions: Int32Array | undefined, wanted: Wanted, result: Float32Array): Promise<unknown>;
  /** Drops tokens [from, from + count), and rotates later keys back by `count` positions. */
  shift(from: number, count: number): Promise<void>;
  dispose(): void;
}

/**
 * @param others - options of our kernels, which go with no other engine
 * @throws {RopewalkError} RANGE for a value that is no engine, or with such an option
 */
export function checkEngine(engine: Engine, others: object, where: string): void {
  const { name, open } = fieldsOf<Engine>(engine, where, 'name', 'open');
  if (typeof name !== 'string' || typeof open !== 'function')
    refuse('RANGE', `${where}: engine`, 'an engine, such as openOnnxEngine() of @ropewalk/model-onnx/node', engine);
  for (const [option, value] of Object.entries(others))
    if (value !== undefined)
      fail('RANGE', `${where}: ${option}`, `it is an option of our kernels, and the engine ${name} has its own.`);
}
