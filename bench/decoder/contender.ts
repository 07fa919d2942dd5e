/**
 * The interface of a contender: Ropewalk, or a peer that runs the same model file.
 *
 * @module
 */

/** A library with a model loaded. */
export interface Contender {
  readonly name:
    | 'ropewalk'
    | 'ropewalk, q8'
    | 'ropewalk, onnxruntime'
    | 'node-llama-cpp'
    | 'transformers.js'
    | 'wllama';
  /** The version, and the settings that matter for the speed. */
  readonly setup: string;
  /**
   * Runs a prompt in a fresh context, then decodes greedily and ignores the end of a text.
   *
   * @param prompt - is the same for all contenders
   * @param steps - the number of tokens that run one by one after the prompt
   */
  run(prompt: Prompt, steps: number): Promise<Sample>;
  close(): Promise<void> | void;
}

/** A text and its tokens. wllama takes only texts. */
export interface Prompt {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** The times and tokens of one run. */
export interface Sample {
  /** The time from the call until the first token was chosen. */
  readonly prefillMs: number;
  /** The time from the first token until `steps` more tokens were chosen. */
  readonly decodeMs: number;
  /** The `steps + 1` chosen tokens. The list is empty for wllama, which returns only a text. */
  readonly tokens: readonly number[];
}

/** The settings with which every contender loads a model. */
export interface Setup {
  readonly threads: number;
  /** The length of the context, in tokens. */
  readonly context: number;
}

/** The number of tokens in one batch of a prefill. It is the default of llama.cpp and of Ropewalk. */
export const BATCH_TOKENS = 512;
