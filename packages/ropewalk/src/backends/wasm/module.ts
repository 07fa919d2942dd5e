/** Unpacks the kernels' two WebAssembly modules, chooses one for this runtime, and fits it to its memory. @module */
import { LENGTHS, PACKED, PIECES } from './kernels.generated.js';

/** The exports of the kernels' module: see assembly/index.ts. Addresses are in bytes. */
export interface Kernels {
  run(kernel: number, args: number, from: number, to: number, scratch: number): void;
  work(
    board: number,
    job: number,
    kernel: number,
    args: number,
    units: number,
    chunk: number,
    patience: number,
  ): number;
  finish(board: number, patience: number): number;
  tileRows(): number;
  serve(board: number, slot: number, looks: number): void;
}

/** A compiled module, and which of the two it is. */
interface KernelModule {
  readonly module: WebAssembly.Module;
  readonly simd: 'relaxed SIMD' | 'simd128';
  /** The reason why it is not the faster one. */
  readonly whyNotRelaxed: string | undefined;
}

/** Unpacks both modules. They are nearly alike, so packing their pieces in turns halves the size. */
async function unpack(): Promise<{ simd128: Uint8Array<ArrayBuffer>; relaxed: Uint8Array<ArrayBuffer> }> {
  const packed = Uint8Array.from(atob(PACKED), (char) => char.charCodeAt(0));
  const { readable, writable } = new DecompressionStream('deflate-raw');
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(packed), writer.close()]);
  // `new Response(readable).arrayBuffer()` would make Node load its whole HTTP client, which takes 20 ms.
  const bytes = new Uint8Array(LENGTHS.reduce((sum, length) => sum + length, 0));
  const reader = readable.getReader();
  for (let at = 0, { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    bytes.set(value!, at);
    at += value!.length;
  }
  await written;
  const modules = LENGTHS.map((length) => new Uint8Array(length));
  let at = 0;
  for (let piece = 0; piece < PIECES; piece++)
    for (const module of modules) {
      const size = Math.ceil(module.length / PIECES);
      const start = piece * size;
      const part = bytes.subarray(at, at + Math.min(size, module.length - start));
      module.set(part, start);
      at += part.length;
    }
  const [simd128, relaxed] = modules;
  return { simd128: simd128!, relaxed: relaxed! };
}

/** Says why this runtime cannot run the kernels at all; undefined when it can. */
export async function whyNotWasm(): Promise<string | undefined> {
  if (typeof WebAssembly === 'undefined') return 'this runtime has no WebAssembly';
  try {
    // Compiling asks the page's content security policy; validate() does not.
    new WebAssembly.Module(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]));
  } catch {
    return "WebAssembly is forbidden: script-src of the CSP lacks 'wasm-unsafe-eval'";
  }
  return WebAssembly.validate((await unpack()).simd128)
    ? undefined
    : 'this runtime has no WebAssembly SIMD (simd128) with atomics';
}

/** Compiles the fastest module that this runtime takes; `shared` says whether workers will share its memory. */
export async function compileKernels(shared: boolean, simd: 'auto' | 'simd128'): Promise<KernelModule> {
  const { simd128, relaxed } = await unpack();
  let bytes = simd === 'auto' ? relaxed : undefined;
  let whyNotRelaxed = bytes ? undefined : 'relaxed SIMD: simd128 was asked for (simd: simd128)';
  if (bytes && !WebAssembly.validate(bytes)) {
    bytes = undefined;
    whyNotRelaxed = 'relaxed SIMD: this runtime does not have it (Node 22 and Chrome 114 do)';
  }
  const chosen = bytes ?? simd128;
  if (!shared) importUnshared(chosen);
  return { module: await WebAssembly.compile(chosen), simd: bytes ? 'relaxed SIMD' : 'simd128', whyNotRelaxed };
}

/**
 * Changes a module in place to import a memory that is not shared: a page that is not cross-origin isolated can have no
 * other. This is one flag of the memory's limits (bit 1 of the byte after its import kind); atomic instructions are
 * valid on either memory.
 *
 * @see https://webassembly.github.io/threads/core/binary/types.html#limits
 */
function importUnshared(bytes: Uint8Array): void {
  let at = 8; // after magic and version
  const leb = (): number => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]!;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const skipName = (): void => {
    const length = leb();
    at += length;
  };
  const IMPORTS = 2;
  const MEMORY = 2;
  while (at < bytes.length) {
    const section = bytes[at++];
    const end = leb() + at;
    if (section === IMPORTS) {
      leb(); // the memory is the only import
      skipName(); // of the module
      skipName(); // of the memory
      if (bytes[at++] === MEMORY) bytes[at]! &= ~2;
      return;
    }
    at = end;
  }
}
