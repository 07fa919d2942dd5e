// @ts-nocheck - node-llama-cpp is installed where this runs, not here.
// The second step of make.py: llama.cpp's tokens for each GGUF in this folder, and for the stories model.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { getLlama } from 'node-llama-cpp';

const { texts, unigramTexts } = JSON.parse(readFileSync('base.json', 'utf8'));
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const gguf = {};
for (const name of readdirSync('.').filter((file) => file.endsWith('.gguf'))) {
  const model = await llama.loadModel({ modelPath: name });
  const list = name.startsWith('unigram-') ? unigramTexts : texts;
  gguf[name.replace('.gguf', '')] = list.map((text) => [...model.tokenize(text, false)]);
  await model.dispose();
}
const model = await llama.loadModel({ modelPath: process.argv[2] });
const more = [...texts, 'Once upon a time', ' leading', 'trailing ', 'a</s>b <s> c', ''];
const stories = [false, true].map((special) => more.map((text) => [...model.tokenize(text, special)]));
writeFileSync('llama.json', JSON.stringify({ release: llama.llamaCppRelease.release, gguf, stories }));
process.exit(0);
