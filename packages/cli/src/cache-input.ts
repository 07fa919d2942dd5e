/** The keys and values of a KV cache: one array of keys, an archive with a name for each layer's, a state file. @module */
import type { Observation } from '@ropewalk/diagnose';
import { type CacheSide, heldDtype } from '@ropewalk/diagnose/internal';
import { dumpOf } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import { openStateDump } from '@ropewalk/trace/internal/node';
import { isFloat, Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { MAX_FILE_BYTES, readDump } from './dump-input.js';

/** One layer of a cache, read when asked for. */
export interface CachedLayer {
  readonly keys: SideReader;
  readonly values?: SideReader;
}

/** @param headDim - the dimensions of a head, where the shape does not tell them; all heads are one if it is left out */
type SideReader = (headDim?: number) => CacheSide;

/** A cache: its layers by their numbers, and the position of each token where the file has them. */
export interface Cache {
  readonly layers: ReadonlyMap<number, CachedLayer>;
  readonly positions?: readonly number[];
}

/** The order of tokens and heads: `[tokens, heads, head_dim]` or `[heads, tokens, head_dim]`. */
export type CacheLayout = 'bsnh' | 'bnsh';

/** Matches `keys`, `k_cache`, `cache_k_l12`, `value_states`. */
const NAME = /^(?:cache_)?(k|keys?|v|values?)(?:_cache|_states)?(?:_?l?(\d+))?$/i;

/**
 * Reads a cache.
 *
 * @param given - a file, `file.npz:name` for keys alone, or a state file of llama.cpp
 */
export async function readCache(given: string, where: string, layout: CacheLayout): Promise<Cache> {
  if (/\.(?:npz|pth?|safetensors)$/.test(given)) return { layers: readArchive(given, where, layout) };
  if (/\.npy$|\.(?:npz|pth?|safetensors):/.test(given))
    return { layers: layersOf(readDump(given, where, {}), where, layout) };
  return readState(given, where);
}

/** Reads a state file whole: its keys are `[tokens, heads × head_dim]` in the order of their positions. */
async function readState(given: string, where: string): Promise<Cache> {
  const { tensors, close } = await openStateDump(given);
  try {
    const read = (name: string): Promise<Tensor> | undefined => tensors.find((one) => one.name === name)?.read();
    const positions = await read('positions');
    if (!positions)
      fail(
        'UNSUPPORTED',
        `${where}: ${given}`,
        'it holds several caches, as models with sliding windows have. Write the keys of each layer to a .npz.',
      );
    const layers = new Map<number, CachedLayer>();
    for (let layer = 0; ; layer++) {
      const [keys, values] = [await read(`layers.${layer}.k_rope`), await read(`layers.${layer}.v`)];
      if (!keys) return { layers, positions: positionList(positions) };
      const side =
        (rows: Tensor): SideReader =>
        (headDim = rows.shape[1]!) => {
          const [cells, width] = rows.shape as [number, number];
          if (width % headDim !== 0)
            refuse('SHAPE', where, `rows of whole heads of ${headDim} dimensions, as the model has`, width);
          return sideOf(rows.reshape([cells, width / headDim, headDim]), where, 'bsnh');
        };
      layers.set(layer, { keys: side(keys), ...(values && { values: side(values) }) });
    }
  } finally {
    await close();
  }
}

function readArchive(given: string, where: string, layout: CacheLayout): ReadonlyMap<number, CachedLayer> {
  const at = `${where}: ${given}`;
  const dump = dumpOf(given, readFileBytes(given, MAX_FILE_BYTES, at), at);
  const found = new Map<number, { keys?: Tensor; values?: Tensor }>();
  for (const name of dump.names) {
    const parts = name.split(/[./]/);
    const [, kind, number] = parts.map((part) => NAME.exec(part)).find((one) => one !== null) ?? [];
    if (kind === undefined) continue;
    const layer = Number(number ?? parts.find((part) => /^\d+$/.test(part)) ?? 0);
    const field = kind.toLowerCase().startsWith('k') ? 'keys' : 'values';
    const layers = found.get(layer) ?? {};
    if (layers[field])
      fail('FORMAT', at, `two of its tensors are ${field} of layer ${layer}. Name one: ${given}:${name}.`);
    found.set(layer, { ...layers, [field]: dump.read(name) });
  }
  const named = [...found].filter(([, { keys }]) => keys).sort(([p], [q]) => p - q);
  if (named.length === 0)
    refuse(
      'FORMAT',
      at,
      'tensors named as keys, such as keys, 0.k or key_cache.0',
      dump.names.slice(0, 8),
      `Name one: ${given}:NAME.`,
    );
  return new Map(
    named.flatMap(([layer, { keys, values }]) => {
      const also = values && layersOf(values, at, layout, layer);
      return [...layersOf(keys!, at, layout, layer)].map(([n, one]) => {
        const own = also?.get(n);
        return [n, own ? { ...one, values: own.keys } : one] as const;
      });
    }),
  );
}

/** The layers of `[layers, tokens, heads, head_dim]`, or the one layer of such a number. */
function layersOf(tensor: Tensor, where: string, layout: CacheLayout, number = 0): Map<number, CachedLayer> {
  const { shape } = tensor;
  const count = shape.length === 4 ? shape[0]! : 1;
  if (count === 1) return new Map([[number, { keys: () => sideOf(tensor, where, layout) }]]);
  const numbers = Array.from({ length: count }, (_, n) => n);
  return new Map(numbers.map((n) => [number + n, { keys: () => sideOf(tensor.slice(0, n, n + 1), where, layout) }]));
}

/** Reads `[tokens, heads, head_dim]`, or with sizes of 1 in front. */
export function sideOf(tensor: Tensor, where: string, layout: CacheLayout): CacheSide {
  const { dtype, shape } = tensor;
  const [before, sizes] = [shape.slice(0, -3), shape.slice(-3)];
  if (sizes.length < 3 || before.some((size) => size !== 1))
    refuse('SHAPE', where, 'keys of [tokens, heads, head_dim], or with layers in front', shape);
  if (!isFloat(dtype) && !dtype.startsWith('f8'))
    refuse('DTYPE', where, 'floats; write blocks and integers with their scales applied', dtype);
  const numbers = tensor.readNumbers() as Float64Array;
  const [tokens, heads, headDim] =
    layout === 'bnsh' ? [sizes[1]!, sizes[0]!, sizes[2]!] : (sizes as [number, number, number]);
  const data = layout === 'bnsh' ? new Float64Array(numbers.length) : numbers;
  if (layout === 'bnsh')
    for (let n = 0, at = 0; n < heads; n++)
      for (let token = 0; token < tokens; token++, at += headDim)
        data.set(numbers.subarray(at, at + headDim), (token * heads + n) * headDim);
  // Values of f16, bf16 and 8-bit floats may be dumped as wider ones.
  return { data, tokens, heads, headDim, dtype: heldDtype(data, isFloat(dtype) ? dtype : 'f32') };
}

/** Positions as numbers. */
export const positionList = (positions: Observation['positions']): number[] =>
  Array.from(positions instanceof Tensor ? (positions.readNumbers() as Float64Array) : positions, Number);
