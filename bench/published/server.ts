/**
 * Asks llama.cpp's server what it makes of messages, and compares with ours. Run it by
 * `scripts/serve/llama-server.sh MODEL.gguf npx tsx bench/published/server.ts MODEL.gguf`. See ../README.md.
 *
 * @module
 */
import type * as Decoder from '@ropewalk/model';
import type * as Files from '@ropewalk/model/node';
import { MESSAGES } from '../../test/support/messages.js';

const built = (path: string): string => new URL(`../../packages/${path}`, import.meta.url).href;
const { generate, renderChat } = (await import(built('model/dist/index.js'))) as typeof Decoder;
const { loadModelFile } = (await import(built('model/dist/node.js'))) as typeof Files;

const { SERVER } = process.env;
const [path] = process.argv.slice(2);
if (!SERVER || !path) throw new Error('usage: SERVER=http://… npx tsx bench/published/server.ts MODEL.gguf');

async function ask(route: string, body: object): Promise<Record<string, unknown>> {
  const answer = await fetch(`${SERVER}${route}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${route} answered ${answer.status}: ${await answer.text()}`);
  return answer.json() as Promise<Record<string, unknown>>;
}

const TOKENS = 48;
const TEXTS = 20;
const model = await loadModelFile(path, { activations: 'q8' });
const { tokenizer } = model;
let [prompts, ids] = [0, 0];
for (const content of MESSAGES) {
  const messages = [{ role: 'user', content }];
  let prompt = content;
  if (tokenizer.chatTemplate !== undefined) {
    prompt = renderChat(tokenizer, messages);
    const theirs = await ask('/apply-template', { messages });
    if (theirs.prompt === prompt) prompts++;
    else console.log(`another prompt: ${JSON.stringify(theirs.prompt)}, ours ${JSON.stringify(prompt)}`);
  }
  const { tokens } = await ask('/tokenize', { content: prompt, add_special: false, parse_special: true });
  const own = tokenizer.encode(prompt, { addBos: false, parseSpecial: true });
  if (JSON.stringify(tokens) === JSON.stringify(own)) ids++;
  else console.log(`other ids: ${JSON.stringify(prompt)}`);
}
const shared: number[] = [];
const rates: number[] = [];
for (const content of MESSAGES.filter((_, i) => i % Math.floor(MESSAGES.length / TEXTS) === 0).slice(0, TEXTS)) {
  const own: number[] = [];
  const prompt = tokenizer.encode(content, { parseSpecial: true });
  for await (const { token } of generate(model, { tokens: prompt }, { maxTokens: TOKENS, temperature: 0 }))
    if (token !== undefined) own.push(token);
  const { tokens, timings } = await ask('/completion', {
    prompt,
    n_predict: TOKENS,
    temperature: 0,
    return_tokens: true,
    cache_prompt: false,
  });
  rates.push((timings as { predicted_per_second: number }).predicted_per_second);
  const first = [...own, -1].findIndex((token, i) => token !== ((tokens as number[])[i] ?? -1));
  shared.push(first < 0 ? TOKENS : first);
}
model.dispose();
const has = tokenizer.chatTemplate !== undefined;
console.log(
  `prompts of its template: ${has ? `${prompts} of ${MESSAGES.length} the same` : 'the file has no template'}`,
);
console.log(`ids: ${ids} of ${MESSAGES.length} the same`);
rates.sort((a, b) => a - b);
console.log(`its tokens per second: ${rates[TEXTS / 2]!.toFixed(1)} (median)`);
console.log(
  `greedy texts of ${TOKENS} tokens: ${shared.filter((count) => count === TOKENS).length} of ${TEXTS} the same; the others part after ${shared
    .filter((count) => count < TOKENS)
    .sort((a, b) => a - b)
    .join(', ')}`,
);
