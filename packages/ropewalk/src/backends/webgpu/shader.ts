/**
 * Completes a kernel's WGSL: the types of its operands' elements, and how its buffers are bound.
 *
 * A kernel calls functions that this file writes for each operand, for example `x`:
 *
 * - `load_x(at) -> V`: one element, or four from a multiple of four on, as f32
 * - `store_x(at, v)`: stores them, rounded once to nearest even
 * - `bits_x(at)`, `put_x(at, bits)`: raw bits, for copies
 *
 * `at` counts elements of the operand from the start of its buffer. Operands whose tensors are in one buffer share one
 * binding, which operators in place need: WebGPU does not bind a buffer twice if one binding is written.
 *
 * @module
 */

/** The bits of each storage type. */
const BITS = { f32: 32, f16: 16, bf16: 16, i8: 8, f8_e4m3: 8, f8_e5m2: 8, u32: 32, u16: 16, u8: 8 } as const;
/** The storage type of an operand's elements: floats, or bits that are only copied. */
export type Element = keyof typeof BITS;
/** The storage types that are loaded as f32 and stored rounded: floats, and the 8-bit dtypes of KV caches. */
export type FloatElement = Exclude<Element, 'u32' | 'u16' | 'u8'>;

/** The bytes of a uniform block: {@link Kernel.params}, then the walk. */
export const PARAMS_BYTES = 1024;

/** An operand of one run. */
export interface Operand {
  readonly name: string;
  readonly element: Element;
  /** The elements of a load or store; four only where every address is a multiple of four elements. */
  readonly lanes: 1 | 4;
  readonly written: boolean;
  /** The number of the run's buffer that it lies in. */
  readonly buffer: number;
}

/** The declaration of a buffer: words, vectors of words, or words whose two elements different threads may write. */
export interface Binding {
  readonly type: 'u32' | 'vec2<u32>' | 'vec4<u32>' | 'atomic<u32>';
  readonly written: boolean;
}

/** A kernel: its parameters and its text. */
export interface Kernel<P extends string = string, V = unknown> {
  readonly name: string;
  /** The scalars of `params`, in order: u32, or f32 where the name is in {@link floats}. */
  readonly params: readonly P[];
  readonly floats?: readonly P[];
  /** The threads of a workgroup. */
  readonly threads: number;
  /** The WGSL, with `main` in it. */
  readonly code: (variant: V) => string;
}

/** Decides how each buffer of a run is bound. */
export function bindingsOf(operands: readonly Operand[], count: number): Binding[] {
  return Array.from({ length: count }, (_, buffer) => {
    const inside = operands.filter((operand) => operand.buffer === buffer);
    const shared = inside.some(({ written, lanes, element }) => written && lanes === 1 && BITS[element] < 32);
    if (shared) return { type: 'atomic<u32>', written: true };
    const written = inside.some((operand) => operand.written);
    const words = inside.map(({ lanes, element }) => (lanes * BITS[element]) / 32);
    const type = words.every((n) => n === 4) ? 'vec4<u32>' : words.every((n) => n === 2) ? 'vec2<u32>' : 'u32';
    return { type, written };
  });
}

/** Writes a kernel's module. `f16` says that the device has `shader-f16`, which widens halves by hardware. */
export function writeShader<V>(
  kernel: Kernel<string, V>,
  variant: V,
  operands: readonly Operand[],
  bindings: readonly Binding[],
  f16: boolean,
): string {
  const fields = kernel.params.map((name) => `  ${name}: ${kernel.floats?.includes(name) ? 'f32' : 'u32'},\n`).join('');
  const declared = bindings.map(
    ({ type, written }, i) =>
      `@group(0) @binding(${i + 1}) var<storage, ${written ? 'read_write' : 'read'}> b${i}: array<${type}>;\n`,
  );
  const elements = new Set(operands.map(({ element }) => element));
  const usesHardware = f16 && elements.has('f16');
  return [
    usesHardware ? 'enable f16;\n\n' : '',
    `struct Params {\n${fields}  @align(16) walk: array<vec4<u32>, ${walkLength(kernel)}>,\n}\n`,
    '@group(0) @binding(0) var<uniform> params: Params;\n',
    ...declared,
    `const THREADS = ${kernel.threads}u;\n\n`,
    elements.has('f16') ? (usesHardware ? WIDEN_F16_BY_HARDWARE : WIDEN_F16) + ROUND_F16 : '',
    elements.has('bf16') ? BF16 : '',
    ...EIGHT_BITS.filter(({ name }) => elements.has(name)).map(eightBitsText),
    ...operands.map((operand) => accessorsOf(operand, bindings[operand.buffer]!)),
    kernel.code(variant).trim(),
    '\n',
  ]
    .join('')
    .replace(/\n{3,}/g, '\n\n'); // Parts that a variant leaves out leave empty lines.
}

/** The number of entries of a kernel's walk, which fills the uniform block after the scalars. */
export function walkLength(kernel: Pick<Kernel, 'params'>): number {
  return PARAMS_BYTES / 16 - Math.ceil(kernel.params.length / 4);
}

const float = new Float32Array(1);
const floatBits = new Uint32Array(float.buffer);

/** Values of parameters that follow one another. */
export interface ParamRun<P extends string> {
  /** The first of the parameters. */
  readonly from: P;
  readonly values: readonly number[];
}

/**
 * Lays parameters out as `Params`; negative numbers such as strides wrap. Each dimension of the walk, fastest first, has
 * its size and the strides of up to three operands.
 */
export function packParams<P extends string>(
  kernel: Pick<Kernel<P>, 'params' | 'floats'>,
  values: Readonly<Partial<Record<P, number>>>,
  runs: readonly ParamRun<P>[] = [],
  walk: readonly (readonly number[])[] = [],
): Uint32Array {
  const { params, floats } = kernel;
  const head = Math.ceil(params.length / 4) * 4;
  const words = new Uint32Array(head + walk.length * 4);
  for (let i = 0; i < params.length; i++) words[i] = values[params[i]!] ?? 0;
  for (const name of floats ?? []) {
    float[0] = values[name] ?? 0;
    words[params.indexOf(name)] = floatBits[0]!;
  }
  for (const run of runs) words.set(run.values, params.indexOf(run.from));
  for (let d = 0; d < walk.length; d++) words.set(walk[d]!, head + d * 4);
  return words;
}

/** Writes the functions of an operand. */
function accessorsOf({ name, element, lanes, written, buffer }: Operand, binding: Binding): string {
  const b = `b${buffer}`;
  const atomic = binding.type === 'atomic<u32>';
  const wide = binding.type.startsWith('vec');
  const get = (at: string): string => (atomic ? `atomicLoad(&${b}[${at}])` : `${b}[${at}]`);
  const set = (at: string, value: string): string =>
    atomic ? `atomicStore(&${b}[${at}], ${value});` : `${b}[${at}] = ${value};`;
  const bits = BITS[element];
  // These are the type of raw bits, and the bodies that read and write them.
  let raw = 'u32';
  let read: string;
  let write: string;
  if (lanes === 4 && bits === 32) {
    raw = 'vec4<u32>';
    read = wide
      ? `return ${b}[at >> 2u];`
      : `return vec4<u32>(${['at', 'at + 1u', 'at + 2u', 'at + 3u'].map(get).join(', ')});`;
    write = wide ? `${b}[at >> 2u] = v;` : ['x', 'y', 'z', 'w'].map((c, i) => set(`at + ${i}u`, `v.${c}`)).join(' ');
  } else if (lanes === 4 && bits === 16) {
    raw = 'vec2<u32>';
    read = wide ? `return ${b}[at >> 2u];` : `return vec2<u32>(${get('at >> 1u')}, ${get('(at >> 1u) + 1u')});`;
    write = wide ? `${b}[at >> 2u] = v;` : `${set('at >> 1u', 'v.x')} ${set('(at >> 1u) + 1u', 'v.y')}`;
  } else if (lanes === 4 || bits === 32) {
    const at = lanes === 4 ? 'at >> 2u' : 'at';
    read = `return ${get(at)};`;
    write = set(at, 'v');
  } else {
    const [shift, low, log, mask] = bits === 16 ? ['1u', '1u', '4u', '0xffffu'] : ['2u', '3u', '3u', '0xffu'];
    read = `return (${get(`at >> ${shift}`)} >> ((at & ${low}) << ${log})) & ${mask};`;
    // Elements share a word, so each thread clears and sets only its own bits.
    write =
      `let s = (at & ${low}) << ${log}; atomicAnd(&${b}[at >> ${shift}], ~(${mask} << s)); ` +
      `atomicOr(&${b}[at >> ${shift}], v << s);`;
  }
  const lines = [`fn bits_${name}(at: u32) -> ${raw} { ${read} }`];
  if (written) lines.push(`fn put_${name}(at: u32, v: ${raw}) { ${write} }`);
  if (element !== 'u32' && element !== 'u16' && element !== 'u8') {
    const value = lanes === 4 ? 'vec4<f32>' : 'f32';
    const form = element === 'f32' ? `bitcast<${value}>` : `widen${lanes}_${element}`;
    lines.push(`fn load_${name}(at: u32) -> ${value} { return ${form}(bits_${name}(at)); }`);
    const back = element === 'f32' ? `bitcast<${raw}>` : `round${lanes}_${element}`;
    if (written) lines.push(`fn store_${name}(at: u32, v: ${value}) { put_${name}(at, ${back}(v)); }`);
  }
  return `${lines.join('\n')}\n\n`;
}

/** Widens f16 to f32 in integers, because WGSL's unpack2x16float may flush subnormals. */
const WIDEN_F16 = /* wgsl */ `
fn widen1_f16(h: u32) -> f32 {
  let magnitude = h & 0x7fffu;
  let sign = (h & 0x8000u) << 16u;
  if (magnitude < 0x400u) { return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 0x1p-24f)); }
  // The exponent's bias goes from 15 to 127; infinities and NaN go from 31 to 255.
  return bitcast<f32>(sign | ((magnitude << 13u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u)));
}
fn widen4_f16(w: vec2<u32>) -> vec4<f32> {
  let h = vec4<u32>(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u);
  return vec4<f32>(widen1_f16(h.x), widen1_f16(h.y), widen1_f16(h.z), widen1_f16(h.w));
}
`;

const WIDEN_F16_BY_HARDWARE = /* wgsl */ `
fn widen1_f16(h: u32) -> f32 { return f32(bitcast<vec2<f16>>(h).x); }
fn widen4_f16(w: vec2<u32>) -> vec4<f32> { return vec4<f32>(bitcast<vec4<f16>>(w)); }
`;

/** Rounds f32 to f16 in integers, to nearest even, because WGSL does not say how its conversion rounds. */
const ROUND_F16 = /* wgsl */ `
fn round1_f16(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | 0x7e00u; }
  if (magnitude >= 0x477ff000u) { return sign | 0x7c00u; } // 65520 and more round to infinity
  if (magnitude < 0x38800000u) { // below 2^-14: a multiple of 2^-24
    if (magnitude < 0x33000000u) { return sign; }
    let shift = 126u - (magnitude >> 23u);
    let significand = (magnitude & 0x7fffffu) | 0x800000u;
    let units = significand >> shift;
    let rest = significand & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (units + select(0u, 1u, rest > half || (rest == half && (units & 1u) == 1u)));
  }
  return sign | ((magnitude + 0xfffu + ((magnitude >> 13u) & 1u) - 0x38000000u) >> 13u);
}
fn round4_f16(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(round1_f16(v.x) | (round1_f16(v.y) << 16u), round1_f16(v.z) | (round1_f16(v.w) << 16u));
}
`;

/** bf16 is the upper half of an f32. */
const BF16 = /* wgsl */ `
fn widen1_bf16(h: u32) -> f32 { return bitcast<f32>(h << 16u); }
fn widen4_bf16(w: vec2<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(w.x << 16u, w.x & 0xffff0000u, w.y << 16u, w.y & 0xffff0000u));
}
fn round1_bf16(v: f32) -> u32 {
  let bits = bitcast<u32>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
fn round4_bf16(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(round1_bf16(v.x) | (round1_bf16(v.y) << 16u), round1_bf16(v.z) | (round1_bf16(v.w) << 16u));
}
`;

/** An 8-bit element: the WGSL that widens a byte `h` to f32, and that rounds an f32 `v` to a byte, saturated. */
interface EightBits {
  readonly name: FloatElement;
  readonly widen: string;
  readonly round: string;
}

/** The conversions work on bits, as for f16, because WGSL may flush subnormals and promises nothing about NaN. */
const EIGHT_BITS: readonly EightBits[] = [
  {
    name: 'i8',
    widen: 'return f32(bitcast<i32>(h << 24u) >> 24u);',
    round: /* wgsl */ `
  if ((bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u) { return 0u; }
  return bitcast<u32>(i32(round(clamp(v, -128.0, 127.0)))) & 0xffu;`,
  },
  {
    name: 'f8_e4m3',
    widen: /* wgsl */ `
  let magnitude = h & 0x7fu;
  let sign = (h & 0x80u) << 24u;
  if (magnitude < 8u) { return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 0x1p-9f)); }
  return bitcast<f32>(sign | select((magnitude << 20u) + 0x3c000000u, 0x7fc00000u, magnitude == 0x7fu));`,
    round: roundEight({ fraction: 3, least: -6, largest: 0x43e00000, top: 0x7e, nan: 0x7f }),
  },
  {
    name: 'f8_e5m2',
    widen: /* wgsl */ `
  let magnitude = h & 0x7fu;
  let sign = (h & 0x80u) << 24u;
  if (magnitude < 4u) { return bitcast<f32>(sign | bitcast<u32>(f32(magnitude) * 0x1p-16f)); }
  return bitcast<f32>(sign | ((magnitude << 21u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7cu)));`,
    round: roundEight({ fraction: 2, least: -14, largest: 0x47600000, top: 0x7b, nan: 0x7e }),
  },
];

/**
 * Writes the body of a rounding to nearest even for a format: its fraction bits, the exponent of its least normal
 * number, and its largest number as bits of f32 (`largest`) and of the format (`top`).
 */
function roundEight(format: { fraction: number; least: number; largest: number; top: number; nan: number }): string {
  const { fraction, least, largest, top, nan } = format;
  const drop = 23 - fraction;
  const normal = (127 + least) * 2 ** 23;
  return /* wgsl */ `
  let bits = bitcast<u32>(v);
  let sign = (bits >> 24u) & 0x80u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return sign | ${nan}u; }
  if (magnitude >= ${largest}u) { return sign | ${top}u; }
  if (magnitude < ${normal}u) { // a multiple of the least magnitude
    let shift = ${127 + least + drop}u - (magnitude >> 23u);
    if (shift > 24u) { return sign; }
    let significand = (magnitude & 0x7fffffu) | 0x800000u;
    let units = significand >> shift;
    let rest = significand & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    return sign | (units + select(0u, 1u, rest > half || (rest == half && (units & 1u) == 1u)));
  }
  return sign | ((magnitude + ${2 ** (drop - 1) - 1}u + ((magnitude >> ${drop}u) & 1u) - ${normal - 2 ** 23}u) >> ${drop}u);`;
}

function eightBitsText({ name, widen, round }: EightBits): string {
  const each = (form: (c: string, shift: number) => string): string =>
    ['x', 'y', 'z', 'w'].map((c, i) => form(c, 8 * i)).join(', ');
  return /* wgsl */ `
fn widen1_${name}(h: u32) -> f32 { ${widen} }
fn widen4_${name}(w: u32) -> vec4<f32> {
  return vec4<f32>(${each((_, shift) => `widen1_${name}((w >> ${shift}u) & 0xffu)`)});
}
fn round1_${name}(v: f32) -> u32 { ${round} }
fn round4_${name}(v: vec4<f32>) -> u32 {
  return ${each((c, shift) => `(round1_${name}(v.${c}) << ${shift}u)`).replaceAll(', ', ' | ')};
}
`;
}
