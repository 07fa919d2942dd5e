/**
 * Runs a visitor's WGSL shader once, on the visitor's own GPU. WebGPU is made for shaders of strangers: one reaches the
 * buffers of its bindings and nothing else.
 *
 * @module
 */
import type { RopePlan, Tensor } from 'ropewalk';

/** Numbers of WebGPU whose names TypeScript does not know: GPUBufferUsage, GPUShaderStage.COMPUTE, GPUMapMode.READ. */
const USAGE = { mapRead: 1, copySrc: 4, copyDst: 8, uniform: 64, storage: 128 } as const;
const [COMPUTE, READ] = [4, 1];

/**
 * Runs a shader with the bindings that puzzles.ts lists, one invocation or more for each element of x.
 *
 * @param x - f32 `[1, tokens, heads, headDim]`
 * @returns y
 * @throws {Error} whose words are for the visitor: no GPU, the compiler's first error with its line, a lost device
 */
export async function runShader(code: string, x: Tensor, plan: RopePlan): Promise<Float32Array> {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error('This browser has no WebGPU, or no GPU that it trusts, so no shader runs here.');
  const device = await adapter.requestDevice();
  const lost = device.lost.then(({ message }): never => {
    throw new Error(
      `The GPU was lost: ${message || 'the browser gives no reason'}. Does a loop of the shader not end?`,
    );
  });
  lost.catch(() => undefined);
  try {
    return await Promise.race([compute(device, code, x, plan), lost]);
  } finally {
    device.destroy();
  }
}

async function compute(device: GPUDevice, code: string, x: Tensor, plan: RopePlan): Promise<Float32Array> {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const wrong = messages.find(({ type }) => type === 'error');
  if (wrong) throw new Error(`Line ${wrong.lineNum}: ${wrong.message}`);
  // A shader that the limit of its loops breaks, such as one with a barrier in them, runs without it.
  const limited = device.createShaderModule({ code: withLimit(code) });
  const isLimited = (await limited.getCompilationInfo()).messages.every(({ type }) => type !== 'error');
  await device.popErrorScope();
  device.pushErrorScope('validation');
  const own = contentsOf(x, plan);
  const contents = isLimited ? [...own, { type: 'storage', data: new Uint32Array(1) } as const] : own;
  const layout = device.createBindGroupLayout({
    entries: contents.map(({ type }, binding) => ({ binding, visibility: COMPUTE, buffer: { type } })),
  });
  const buffers = contents.map(({ data, type }) => {
    const usage = type === 'uniform' ? USAGE.uniform : USAGE.storage;
    const buffer = device.createBuffer({
      size: data.byteLength,
      usage: usage | USAGE.copyDst | USAGE.copySrc,
    });
    device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  });
  const made = device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module: isLimited ? limited : module },
  });
  const pipeline = await made.catch(({ message }: Error): never => {
    const words =
      "The shader's bindings are not those of this page: declare them as the text that it starts with does.";
    throw new Error(/binding/i.test(message) ? `${words} The GPU says: ${message}` : message);
  });
  const y = buffers[own.length - 1]!;
  const read = device.createBuffer({ size: y.size + 4, usage: USAGE.mapRead | USAGE.copyDst });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(
    0,
    device.createBindGroup({ layout, entries: buffers.map((buffer, binding) => ({ binding, resource: { buffer } })) }),
  );
  pass.dispatchWorkgroups(Math.ceil(x.size / invocations(code)));
  pass.end();
  encoder.copyBufferToBuffer(y, 0, read, 0, y.size);
  if (isLimited) encoder.copyBufferToBuffer(buffers.at(-1)!, 0, read, y.size, 4);
  device.queue.submit([encoder.finish()]);
  const refused = await device.popErrorScope();
  if (refused) throw new Error(refused.message);
  await read.mapAsync(READ);
  const result = read.getMappedRange().slice(0);
  if (new Uint32Array(result, y.size)[0] !== 0)
    throw new Error(`The loops of the shader ran more than ${MOST_STEPS} times in one invocation. Does one not end?`);
  return new Float32Array(result, 0, y.size / 4);
}

/** The most times that the loops of one invocation run, together; x has 1,536 elements in most cases. */
const MOST_STEPS = 2 ** 18;

/**
 * Adds to each loop a step that leaves it when there were too many, because no browser ends a shader that a software GPU
 * runs, and the page could not be drawn while it ran. In WGSL no header of a loop has a brace.
 */
export function withLimit(code: string): string {
  const step = `ropewalk_steps += 1u; if (ropewalk_steps > ${MOST_STEPS}u) { atomicStore(&ropewalk_late, 1u); break; }`;
  const loops = withoutComments(code).replace(/\b(?:for|while|loop)\b[^{}]*\{/g, `$& ${step}`);
  return `${loops}
var<private> ropewalk_steps: u32;
@group(0) @binding(6) var<storage, read_write> ropewalk_late: atomic<u32>;`;
}

/** Removes comments. In WGSL a block comment may contain others. */
function withoutComments(code: string): string {
  const line = /[^\n\v\f\r\u0085\u2028\u2029]*/y;
  let text = '';
  let depth = 0;
  for (let at = 0; at < code.length; at++) {
    const two = code.slice(at, at + 2);
    if (two === '/*' || (two === '*/' && depth > 0)) {
      depth += two === '/*' ? 1 : -1;
      text += ' '; // what was apart stays apart
      at++;
    } else if (two === '//' && depth === 0) {
      line.lastIndex = at;
      at += line.exec(code)![0].length - 1;
    } else if (depth === 0) text += code[at];
  }
  return text;
}

/** Reads the size of a workgroup. One that is no number counts as 1, which starts invocations enough for any size. */
export function invocations(code: string): number {
  const sizes = /@workgroup_size\s*\(([\d\s,u]+)\)/.exec(withoutComments(code))?.[1]?.match(/\d+/g) ?? [];
  return sizes.reduce((product, size) => product * Math.max(1, Number(size)), 1);
}

/** Makes the content of each binding, in their order. */
function contentsOf(x: Tensor, { headDim, rotaryDim, rotaryOffset, table, tableRows, source }: RopePlan) {
  const [, tokens, heads] = x.shape as [number, number, number];
  const rowsOf = (values: ArrayLike<number>): Float32Array<ArrayBuffer> =>
    Float32Array.from({ length: tokens * table.pairs }, (_, n) => {
      return values[tableRows[Math.floor(n / table.pairs)]! * table.pairs + (n % table.pairs)]!;
    });
  const options = new Uint32Array([tokens, heads, headDim, rotaryDim, rotaryOffset, 0, 0, 0]);
  new Float32Array(options.buffer)[5] = source!.spec.base;
  const xs = Float32Array.from(x.readNumbers() as Float64Array);
  return [
    { type: 'read-only-storage', data: xs },
    { type: 'read-only-storage', data: Int32Array.from(source!.positions) },
    { type: 'read-only-storage', data: rowsOf(table.cos) },
    { type: 'read-only-storage', data: rowsOf(table.sin) },
    { type: 'uniform', data: options },
    { type: 'storage', data: xs },
  ] as const;
}
