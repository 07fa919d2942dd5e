/**
 * Who runs a model: Ropewalk, or a peer on the very same file.
 *
 * @module
 */

/** A library with a model loaded. */
export interface Contender {
  readonly name: 'ropewalk' | 'ropewalk, q8' | 'ropewalk, onnxruntime' | 'node-llama-cpp' | 'wllama';
  /** Version, and how it is set up where that matters. */
  readonly setup: string;
  /**
   * Runs a prompt in a fresh context, then decodes greedily, the end of a text ignored.
   *
   * @param prompt - the same for all
   * @param steps - tokens to run one by one after it
   */
  run(prompt: Prompt, steps: number): Promise<Sample>;
  close(): Promise<void> | void;
}

/** A text, and the tokens that it is: wllama takes only texts. */
export interface Prompt {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** One run. */
export interface Sample {
  /** From the call until the first token was chosen. */
  readonly prefillMs: number;
  /** From there until `steps` more tokens were chosen. */
  readonly decodeMs: number;
  /** The tokens chosen, `steps + 1` of them; none of wllama, which gives a text only. */
  readonly tokens: readonly number[];
}

/** How a model is loaded, the same for all. */
export interface Setup {
  readonly threads: number;
  /** Tokens of room. */
  readonly context: number;
}

/** Tokens at a time in a prefill: the default of llama.cpp, and ours. */
export const BATCH_TOKENS = 512;
