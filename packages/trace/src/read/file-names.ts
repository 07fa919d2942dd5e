/** The names of tensors by the paths of their files, as writers of many small files give them. @module */

/** A name, and the place in the run that a path tells. */
export interface NamedFile {
  /** The name of the tensor. Undefined where only the path itself can be one. */
  readonly name?: string;
  /** The path without step and rank, with dots between the folders. */
  readonly rest: string;
  readonly step?: number;
  readonly rank?: number;
  /** The place in the run, where the path has one. */
  readonly order?: number;
}

/** SGLang's dumper: `step=0___rank=1___dump_index=7___name=…___layer_id=3.pt`; older ones have `forward_pass_id` for `step`. */
const TAG = '___';
/** msProbe's modules, such as `Module.layers.0.q_proj.Linear.forward.0.output.0`: module, class, call, side, place. */
const MODULE = /^(?:Module|Cell)\.(.+)\.\w+\.forward\.\d+\.(input|output|kwargs)(?:\.(.+))?$/;
/** Files of gradients and of parameters, which every step of a dump may repeat. */
const NO_ACTIVATION = /^(?:Module|Cell)\..*\.(?:backward|parameters|parameters_grad)\.|___name=(?:grad|param)__/;
const FOLDERS = {
  step: /(?:^|[/_.-])(?:global_)?step[_=-]?(\d{1,9})(?=[/_.-]|$)/i,
  rank: /(?:^|[/_.-])rank[_=-]?(\d{1,6})(?=[/_.-]|$)/i,
};

/**
 * Reads a path.
 *
 * @param path - inside the dump's folder, with `/`, without the extension
 * @returns undefined for a file of gradients or parameters
 */
export function readFileName(path: string): NamedFile | undefined {
  const file = path.slice(path.lastIndexOf('/') + 1);
  if (NO_ACTIVATION.test(file)) return undefined;
  const number = (pattern: RegExp): number | undefined => {
    const found = pattern.exec(path)?.[1];
    return found === undefined ? undefined : Number(found);
  };
  const [step, rank] = [number(FOLDERS.step), number(FOLDERS.rank)];
  const rest =
    path
      .replace(FOLDERS.step, '')
      .replace(FOLDERS.rank, '')
      .replaceAll('/', '.')
      .replace(/^[._-]+/, '') || file;
  const place = {
    rest,
    ...(step === undefined ? {} : { step }),
    ...(rank === undefined ? {} : { rank }),
  };
  const tags = new Map(file.split(TAG).map((tag) => tag.split(/=(.*)/s).slice(0, 2) as [string, string]));
  const name = tags.get('name');
  if (name !== undefined) return { ...place, ...ofTags(tags, name) };
  const [, module, side, at] = MODULE.exec(file) ?? [];
  return module === undefined ? place : { ...place, name: ofModule(module, side!, at) };
}

function ofTags(tags: ReadonlyMap<string, string>, name: string): Omit<NamedFile, 'rest'> {
  const numbers = (key: string): number | undefined =>
    /^\d{1,9}$/.test(tags.get(key) ?? '') ? Number(tags.get(key)) : undefined;
  const layer = numbers('layer_id');
  // The name that its hooks give a module has the prefix; inputs are called by one word in all dumps.
  const own = name.replace(/^non_intrusive__/, '').replace(/\.inputs\./, '.input.');
  const known = layer === undefined || /(?:^|\.)layers?\.\d/.test(own) ? own : `layers.${layer}.${own}`;
  const found = {
    step: numbers('step') ?? numbers('forward_pass_id'),
    rank: numbers('rank'),
    order: numbers('dump_index'),
  };
  return { name: known, ...Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined)) };
}

/** The first output of a module gets the module's name; what the embedding takes are the tokens. */
function ofModule(module: string, side: string, at: string | undefined): string {
  if (side === 'output' && (at === undefined || at === '0')) return module;
  if (side === 'input' && at === '0' && /(?:^|\.)(?:embed_tokens|wte|word_embeddings)$/.test(module)) return 'tokens';
  return [module, side, ...(at === undefined ? [] : [at])].join('.');
}
