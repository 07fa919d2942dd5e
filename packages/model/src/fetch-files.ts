/** Fetches files of a model from a server: a hub, or any host of files. @module */
import type { ByteSource } from '@ropewalk/formats';
import { SAFETENSORS_INDEX } from '@ropewalk/formats/internal/models';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, type OptionNames, reading, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { byteSource, type FileData } from './byte-source.js';
import { folderOf, jsonOf, type ModelFiles } from './folder.js';

/**
 * Opens a file on a server. It is read piece by piece if the server answers range requests; otherwise it is fetched
 * once.
 *
 * @param url - its address
 * @param given - options of fetch, such as headers and credentials
 * @returns a source for loadModel
 * @throws {RopewalkError} FORMAT when it cannot be fetched
 * @example const model = await loadModel({ 'model.gguf': await fetchSource('./model.gguf') });
 */
export async function fetchSource(url: string | URL, given: RequestInit = {}): Promise<ByteSource> {
  const opened = await openUrl(url, given, 'fetchSource');
  return typeof opened === 'number' ? refuse('FORMAT', String(url), 'HTTP status 200 or 206', opened) : opened;
}

/** Opens a file for the function `caller`, or returns the HTTP status of a failure. */
async function openUrl(url: string | URL, given: RequestInit, caller: string): Promise<ByteSource | number> {
  if (typeof url !== 'string' && !reading(`${caller}: url`, () => url instanceof URL))
    refuse('RANGE', `${caller}: url`, 'a URL', url);
  const where = String(url);
  const init = readOptions(given, `${caller}: options`);
  const first = reading(`${caller}: headers`, () => new Headers(init.headers));
  const get = async (range?: string): Promise<Response> => {
    const headers = new Headers(first);
    if (range !== undefined) headers.set('range', range);
    const silent = (cause: unknown): never => fail('FORMAT', where, `the server does not answer: ${String(cause)}`);
    return fetch(url, { ...init, headers }).catch(silent);
  };
  const probe = await get('bytes=0-0');
  if (!probe.ok) return probe.status;
  const size = Number(/\/(\d+)$/.exec(probe.headers.get('content-range') ?? '')?.[1]);
  // Without a size the answer is the whole file, or a compressed one, whose bytes are not those that ranges count.
  if (probe.status !== 206 || !Number.isSafeInteger(size)) {
    const whole = probe.status === 206 ? await get() : probe;
    if (!whole.ok) refuse('FORMAT', where, 'HTTP status 200', whole.status);
    return byteSource(await whole.blob(), where);
  }
  await probe.body?.cancel();
  return {
    size,
    async read(start, length) {
      const response = await get(`bytes=${start}-${start + length - 1}`);
      if (response.status !== 206)
        refuse('FORMAT', where, 'HTTP status 206', response.status, 'The server answered range requests before.');
      return new Uint8Array(await response.arrayBuffer());
    },
  };
}

/** How {@link fetchModelFiles} gets files. */
export interface FetchFilesOptions {
  /** Opens one file, or returns undefined for a missing one. Default: reads it piece by piece from the server. */
  readonly open?: (url: URL) => FileData | undefined | Promise<FileData | undefined>;
  /** Options of fetch, such as headers and credentials. They are not used with `open`. */
  readonly init?: RequestInit;
}

const NAMES: OptionNames<FetchFilesOptions> = { open: true, init: true };

const OPTIONAL = [
  'tokenizer.json',
  'tokenizer_config.json',
  'generation_config.json',
  'chat_template.jinja',
  SAFETENSORS_INDEX,
];
/** The HTTP statuses of a missing file: hosts that list no folders answer 403. */
const ABSENT = [403, 404];

/**
 * Opens the files of a model for loadModel. All of them are at the address.
 *
 * @param url - a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors, such as
 *   `https://HOST/ORG/NAME/resolve/REVISION/`; in a page also relative to it
 * @param given - how each file is opened
 * @returns the files by name
 * @throws {RopewalkError} RANGE for a value that is no address; FORMAT when a needed file is missing, or cannot be fetched
 * @example const model = await loadModel(await fetchModelFiles('./models/marline/'));
 */
export async function fetchModelFiles(url: string | URL, given: FetchFilesOptions = {}): Promise<ModelFiles> {
  const { open, init: givenInit = {} } = readOptions(given, 'fetchModelFiles: options', NAMES);
  checkTypes({ open }, 'function', 'fetchModelFiles');
  const init = readOptions(givenInit, 'fetchModelFiles: init');
  const folder = addressOf(url);
  const name = folder.pathname.split('/').at(-1)!;
  const isFile = /\.gguf$/i.test(name);
  if (!isFile && name !== '') folder.pathname += '/';
  const files = new Map<string, FileData>();
  const add = async (file: string): Promise<boolean> => {
    const at = isFile ? folder : new URL(file, folder);
    const data = await (open ? open(at) : openUrl(at, init, 'fetchModelFiles'));
    if (typeof data === 'number') {
      if (ABSENT.includes(data)) return false;
      refuse('FORMAT', String(at), 'HTTP status 200 or 206', data);
    }
    if (data !== undefined) files.set(file, data);
    return data !== undefined;
  };
  const need = async (file: string): Promise<void> => {
    const next = 'Give the address of a .gguf file, or of a folder with config.json and *.safetensors.';
    if (!(await add(file))) fail('FORMAT', String(folder), `there is no ${file}. ${next}`);
  };
  if (isFile) {
    await need(name);
    return files;
  }
  await need('config.json');
  for (const file of OPTIONAL) await add(file);
  if (await add('modules.json')) {
    await add('config_sentence_transformers.json');
    const modules = await jsonOf(folderOf(files, String(folder)), 'modules.json');
    for (const module of new Fields({ modules }, `${folder}modules.json`).objects('modules')) {
      const path = module.optionalText('path') ?? '';
      if (/^\d+_\w+$/.test(path)) for (const one of ['config.json', 'model.safetensors']) await add(`${path}/${one}`);
    }
  }
  if (!files.has(SAFETENSORS_INDEX)) await need('model.safetensors');
  else for (const file of await partsOfIndex(files, String(folder))) await need(file);
  return files;
}

/** Returns the names of the files in the index; they are in its folder. */
async function partsOfIndex(files: ReadonlyMap<string, FileData>, where: string): Promise<ReadonlySet<string>> {
  const index = await jsonOf(folderOf(files, where), SAFETENSORS_INDEX);
  const map = new Fields(index, `${where}${SAFETENSORS_INDEX}`).object('weight_map');
  const parts = new Set(map.keys().map((tensor) => map.text(tensor)));
  for (const part of parts)
    if (!/^[\w.-]+\.safetensors$/i.test(part))
      refuse('FORMAT', `${where}${SAFETENSORS_INDEX}`, 'names of .safetensors files in its folder', part);
  return parts;
}

function addressOf(url: string | URL): URL {
  return reading('fetchModelFiles: url', () => {
    if (typeof url !== 'string' && !(url instanceof URL)) return refuse('RANGE', 'fetchModelFiles: url', 'a URL', url);
    const base = (globalThis as { location?: { href: string } }).location?.href;
    if (!URL.canParse(url, base) || !URL.canParse('file', new URL(url, base).href))
      refuse('RANGE', 'fetchModelFiles: url', 'the address of a .gguf file or of a folder', String(url));
    return new URL(url, base);
  });
}
