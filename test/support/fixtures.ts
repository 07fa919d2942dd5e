/** Where the files of others lie that tests read; test/fixtures/README.md says what each is. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const FIXTURES = fileURLToPath(new URL('../fixtures', import.meta.url));

/** A small trained model, in HuggingFace's and in GGUF files. */
export const STORIES = `${FIXTURES}/models/stories260K`;

/** Random models of the families, with the logits of llama.cpp. */
export const FAMILIES = `${FIXTURES}/families`;

/** Models with llama.cpp's logits: those of the repository, and twelve that are too large for it. */
export const LLAMACPP = `${FIXTURES}/llamacpp/models`;
export const LLAMACPP_BESIDE = fileURLToPath(new URL('../../../shared/vectors/llamacpp/models', import.meta.url));

/** Why the twelve are not run, or false. The runner does not count "left out" as a test that was skipped. */
export const noLlamacppBeside: string | false = existsSync(LLAMACPP_BESIDE)
  ? false
  : 'left out: models of 20 MB that lie beside the repository where we work (test/fixtures/README.md)';
