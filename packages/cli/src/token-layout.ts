/** Options that say how tokens lie, from which positions follow. @module */
import type { TokenLayout } from '@ropewalk/diagnose';
import { RANK_LAYOUTS } from '@ropewalk/diagnose/internal';
import { readJsonFile } from '@ropewalk/formats/internal/node';
import { refuse } from 'ropewalk/backend';
import { readName } from 'ropewalk/internal';
import { readDump } from './dump-input.js';
import { Flags, MAX_INTEGER, type Texts } from './options.js';

export type LayoutOptions = Texts<
  'tokens' | 'cuSeqlens' | 'attentionMask' | 'chunks' | 'cached' | 'grid' | 'rankLayout'
>;

const MOST = 65536;

/** Reads the layout that the options give; undefined without one. @throws {RopewalkError} with the option */
export function readTokenLayout(options: LayoutOptions): TokenLayout | undefined {
  const flags = new Flags(options);
  const { cuSeqlens, attentionMask, grid, rankLayout } = options;
  const tokens = flags.integer('tokens', 1);
  const chunks = flags.integers('chunks', 1, MAX_INTEGER, MOST);
  if (tokens === undefined && chunks === undefined && cuSeqlens === undefined && attentionMask === undefined) {
    flags.refuseAny(['cached', 'grid', 'rankLayout'], 'it needs --tokens, --cu-seqlens, --attention-mask or --chunks.');
    return undefined;
  }
  const cached = flags.integers('cached', 0, MAX_INTEGER, MOST);
  const layout: { -readonly [K in keyof TokenLayout]: TokenLayout[K] } = {};
  if (tokens !== undefined) layout.tokens = tokens;
  if (chunks !== undefined) layout.chunks = chunks;
  if (cached !== undefined) layout.cached = cached.length === 1 ? cached[0] : cached;
  if (cuSeqlens !== undefined)
    layout.cuSeqlens = /^[\d, ]+$/.test(cuSeqlens)
      ? flags.integers('cuSeqlens', 0, MAX_INTEGER, MOST)
      : Array.from(readDump(cuSeqlens, '--cu-seqlens', {}).readNumbers() as Float64Array);
  if (attentionMask !== undefined) layout.attentionMask = readMask(attentionMask);
  if (grid !== undefined) layout.grid = grid.split(' ').map(readImage);
  if (rankLayout !== undefined) {
    const [, name, rank, of] =
      /^([\w-]+):(\d+)\/(\d+)$/.exec(rankLayout) ??
      refuse('FORMAT', '--rank-layout', 'LAYOUT:RANK/RANKS, such as zigzag:0/4', rankLayout);
    layout.rank = { layout: readName(name!, RANK_LAYOUTS, '--rank-layout'), rank: Number(rank), of: Number(of) };
  }
  return layout;
}

/** `[batch, tokens]` or `[tokens]` from a dump, or from JSON. */
function readMask(file: string): number[][] {
  if (file.endsWith('.json')) {
    const json = readJsonFile(file, '--attention-mask');
    return (Array.isArray(json) && !Array.isArray(json[0]) ? [json] : json) as number[][];
  }
  const mask = readDump(file, '--attention-mask', {});
  const values = Array.from(mask.readNumbers() as Float64Array);
  const width = mask.shape.at(-1)!;
  return Array.from({ length: values.length / width }, (_, b) => values.slice(b * width, (b + 1) * width));
}

/** `4:1x2x2`: from token 4 on, 1 × 2 × 2 patches. */
function readImage(text: string): NonNullable<TokenLayout['grid']>[number] {
  const [, at, t, h, w] =
    /^(\d+):(\d+)x(\d+)x(\d+)$/.exec(text) ??
    refuse('FORMAT', '--grid', 'TOKEN:TxHxW, several with blanks between them, such as "4:1x16x16"', text);
  return { at: Number(at), t: Number(t), h: Number(h), w: Number(w) };
}
