/** Reads the headers of the user's model files. Workers use it. @module */
import { type ByteSource, type GgufModel, ggufModelOf, partsOf } from '@ropewalk/formats';
import { byteSource } from '@ropewalk/model';
import { openRemote, type Remote } from './remote.js';

/** Opens a file, of the visitor or of another host, and counts the bytes that are read. */
export async function counted(file: File | Remote, count: { bytes: number }): Promise<ByteSource> {
  const source = 'url' in file ? await openRemote(file) : byteSource(file, file.name);
  return {
    size: source.size,
    read(start, length) {
      count.bytes += length;
      return source.read(start, length);
    },
  };
}

/** Reads the header and the factor tensors of a GGUF, or of all its parts. */
export async function readGguf(
  files: readonly (File | Remote)[],
  count = { bytes: 0 },
): Promise<GgufModel & { readonly file: string; readonly bytes: number }> {
  const names = partsOf(
    files.map(({ name }) => name),
    'these files',
  );
  if (!names) throw new Error('These .gguf files are not parts of one model. Drop one file, or all parts of one.');
  const byName = new Map(files.map((file) => [file.name, file]));
  const parts = [];
  for (const name of names) parts.push({ file: name, source: await counted(byName.get(name)!, count) });
  const bytes = parts.reduce((sum, { source }) => sum + source.size, 0);
  return { ...(await ggufModelOf(parts)), file: names[0]!, bytes };
}
