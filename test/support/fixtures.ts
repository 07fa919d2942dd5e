/** Where the files of others lie that tests read; test/fixtures/README.md says what each is. */
import { fileURLToPath } from 'node:url';

export const FIXTURES = fileURLToPath(new URL('../fixtures', import.meta.url));

/** A small trained model, in HuggingFace's and in GGUF files. */
export const STORIES = `${FIXTURES}/models/stories260K`;

/** Random models of the families, with the logits of llama.cpp. */
export const FAMILIES = `${FIXTURES}/families`;
