/** The files of a model on a server: a hub, or any host of files. @module */
import { SAFETENSORS_INDEX } from '@ropewalk/formats/models';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, type OptionNames, reading, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { type FileData, openUrl } from './byte-source.js';
import { folderOf, jsonOf, type ModelFiles } from './description.js';

/** How {@link fetchModelFiles} gets files. */
export interface FetchFilesOptions {
  /** Opens one file, or gives undefined where there is none; by default piece by piece from the server. */
  readonly open?: (url: URL) => FileData | undefined | Promise<FileData | undefined>;
  /** Options of fetch, such as headers and credentials, unless `open` is given. */
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
/** HTTP statuses of a file that is not there: hosts that list no folders answer 403. */
const ABSENT = [403, 404];

/**
 * Opens the files of a model for loadModel. Nothing is fetched but what is at the address.
 *
 * @param url - a .gguf file, or a folder with config.json, tokenizer.json and *.safetensors, such as
 *   `https://HOST/ORG/NAME/resolve/REVISION/`; in a page also relative to it
 * @param given - how each file is opened
 * @returns the files by name
 * @throws {RopewalkError} RANGE for what is no address; FORMAT when a file that must be there is not, or cannot be fetched
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
    if (await add(file)) return;
    fail(
      'FORMAT',
      String(folder),
      `there is no ${file}. Give the address of a .gguf file, or of a folder with config.json and *.safetensors.`,
    );
  };
  if (isFile) {
    await need(name);
    return files;
  }
  await need('config.json');
  for (const file of OPTIONAL) await add(file);
  if (!files.has(SAFETENSORS_INDEX)) await need('model.safetensors');
  else for (const file of await partsOfIndex(files, String(folder))) await need(file);
  return files;
}

/** The files that the index names; they are in its folder. */
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
