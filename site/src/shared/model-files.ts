/** Reads the headers of the user's model files. Workers use it. @module */
import { type ByteSource, type GgufModel, ggufModelOf, partsOf } from '@ropewalk/formats';
import { byteSource } from '@ropewalk/model';

/** Wraps a file to count the bytes that are read. */
export function counted(file: File, count: { bytes: number }): ByteSource {
  const source = byteSource(file, file.name);
  return {
    size: source.size,
    read(start, length) {
      count.bytes += length;
      return source.read(start, length);
    },
  };
}

/** Reads the header and the factor tensors of a GGUF, or of all its parts. */
export async function readGguf(files: readonly File[], count = { bytes: 0 }): Promise<GgufModel & { file: string }> {
  const names = partsOf(
    files.map(({ name }) => name),
    'these files',
  );
  if (!names) throw new Error('These .gguf files are not parts of one model. Drop one file, or all parts of one.');
  const byName = new Map(files.map((file) => [file.name, file]));
  const model = await ggufModelOf(names.map((name) => ({ file: name, source: counted(byName.get(name)!, count) })));
  return { ...model, file: names[0]! };
}
