/** Names the folders of the test files that others made. test/fixtures/README.md describes each. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const FIXTURES = fileURLToPath(new URL('../fixtures', import.meta.url));

/** A small trained model, in HuggingFace's format and as GGUF files. */
export const STORIES = `${FIXTURES}/models/stories260K`;

/** Random models of each family, with llama.cpp's logits. */
export const FAMILIES = `${FIXTURES}/families`;

/** Models with llama.cpp's logits. Twelve more are too large for the repository. */
export const LLAMACPP = `${FIXTURES}/llamacpp/models`;
export const LLAMACPP_BESIDE = fileURLToPath(new URL('../../../shared/vectors/llamacpp/models', import.meta.url));

/** The reason why the twelve do not run, or false. The runner does not count "left out" as a skipped test. */
export const noLlamacppBeside: string | false = existsSync(LLAMACPP_BESIDE)
  ? false
  : 'left out: models of 20 MB that lie beside the repository where we work (test/fixtures/README.md)';
