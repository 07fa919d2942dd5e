/** A scaling that is lost shows in 200 tokens whose positions jump to a million, and not in 200 that follow. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { writeNpyHeader } from '@ropewalk/formats/internal';
import { logits, type Model } from '@ropewalk/model';
import { loadModelFolder } from '@ropewalk/model/node';
import { MARLINE } from '../../../test/support/probe-server.js';
import { noPython, runPython } from '../../../test/support/python.js';
import { TEXT } from '../src/text.js';

const folder = mkdtempSync(join(tmpdir(), 'probe-far-'));
const long = { max_position_embeddings: 2 ** 20, rope_theta: 1e6 };
/** With factor 32 the pairs that turn once in 32,768 positions, or less, are slowed down: no text of 200 tokens shows them. */
const scaling = {
  rope_type: 'llama3',
  factor: 32,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 32768,
};

function write(name: string, fields: object): string {
  const path = join(folder, name);
  cpSync(MARLINE, path, { recursive: true, filter: (file) => !file.endsWith('.gguf') });
  const config = JSON.parse(readFileSync(join(MARLINE, 'config.json'), 'utf8'));
  writeFileSync(join(path, 'config.json'), JSON.stringify({ ...config, ...long, ...fields }));
  return path;
}

function integers(name: string, list: readonly number[]): string {
  const header = writeNpyHeader({ dtype: 'i32', shape: [list.length] });
  writeFileSync(join(folder, name), Buffer.concat([header, new Uint8Array(Int32Array.from(list).buffer)]));
  return join(folder, name);
}

describe('far positions', { skip: noPython }, () => {
  let model: Model;
  before(async () => {
    model = await loadModelFolder(write('scaled', { rope_scaling: scaling }), { backend: 'cpu' });
    write('lost', {});
  });
  after(() => {
    model?.dispose();
    rmSync(folder, { recursive: true });
  });
  for (const [name, of, served, least, most] of [
    ['right, from 0', (n: number) => n, 'scaled', 0, 1e-3],
    // transformers computes angles in f32, which are off by 0.06 at a million.
    ['right, with a jump', (n: number) => (n < 100 ? n : 1e6 + n), 'scaled', 0, 0.5],
    ['lost, from 0', (n: number) => n, 'lost', 0, 0.5],
    ['lost, all from a million', (n: number) => 1e6 + n, 'lost', 0, 0.5],
    ['lost, with a jump', (n: number) => (n < 100 ? n : 1e6 + n), 'lost', 2, 50],
  ] as const)
    test(name, async () => {
      const tokens = model.tokenizer.encode(TEXT).slice(0, 200);
      const positions = tokens.map((_, n) => of(n));
      const out = join(folder, 'out.npy');
      runPython('logits.py', [join(folder, served), integers('t.npy', tokens), out, integers('p.npy', positions)]);
      const theirs = parseNpy(readFileSync(out)).data as Float32Array;
      let at = 0;
      let far = 0;
      for await (const block of logits(model, tokens, { positions }))
        for (const logit of block) far = Math.max(far, Math.abs(logit - theirs[at++]!));
      assert.equal(at, theirs.length);
      assert.ok(far >= least && far <= most, `${far}`);
    });
});
