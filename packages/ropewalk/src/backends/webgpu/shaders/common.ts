/** WGSL that several kernels share. @module */

/** The head of `main`. Workgroups are numbered through both dimensions of the grid. */
export const MAIN = /* wgsl */ `
@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
)`;

/** The number of this workgroup; `unit` is the number of this thread among all. */
export const GROUP = 'id.y * grid.x + id.x';
export const UNIT = '(id.y * grid.x + id.x) * THREADS + lane';

/**
 * Computes the offsets of up to three operands at index t of the walk's dimensions `first` … `first + count − 1`, fastest
 * first; each entry of the walk is `(size, stride, stride, stride)`.
 */
export const WALK = /* wgsl */ `
fn walk(t: u32, first: u32, count: u32) -> vec3<u32> {
  var rest = t;
  var at = vec3<u32>();
  for (var d = first; d < first + count; d++) {
    let dim = params.walk[d];
    at += (rest % dim.x) * dim.yzw;
    rest /= dim.x;
  }
  return at;
}
`;

/**
 * Chooses the threads for a row of so many loads: a power of two, at least the 32 that the hardware runs together, and
 * otherwise less than twice the loads, so that few threads idle.
 *
 * @param most - the threads of a long row, a power of two
 */
export function threadsFor(loads: number, most: number): number {
  let threads = 32;
  while (threads < loads && threads < most) threads *= 2;
  return threads;
}

/**
 * Adds the values of all threads of the workgroup and gives each thread the sum, in a fixed order: the same bits in
 * every run.
 */
export const SUM = /* wgsl */ `
var<workgroup> partial: array<f32, THREADS>;
fn sum(value: f32, lane: u32) -> f32 {
  workgroupBarrier(); // until every thread has read the last sum
  partial[lane] = value;
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { partial[lane] += partial[lane + half]; }
  }
  return workgroupUniformLoad(&partial[0]);
}
`;

/**
 * Computes the root mean square of a row that is spread over the workgroup; the kernel provides `squares…(scale)`, the
 * sum of (v · scale)². Where squares overflow or underflow f32, the row is multiplied by a power of two and its squares
 * are added again.
 */
export const RMS = /* wgsl */ `
fn rescale(mean: f32) -> f32 {
  if (mean < 0x1p-80f) { return 0x1p+100f; }
  return select(0x1p-80f, 1.0, mean < 0x1p+120f); // not below: infinity and NaN too
}
/// (root of the mean, of the row times y; y)
fn root_of(mean: f32, scale: f32, eps: f32, smallEps: f32) -> vec2<f32> {
  return vec2<f32>(sqrt(mean + select(eps * scale * scale, smallEps, scale > 1.0)), scale);
}
`;

/**
 * Gives the params `eps`, and `smallEps` = eps · 2^200 for rows times 2^100, kept away from 0 and infinity in f32.
 */
export function epsParams(eps: number): { eps: number; smallEps: number } {
  return { eps, smallEps: eps === 0 ? 0 : Math.min(Math.max(eps * 2 ** 200, 2 ** -126), 2 ** 127) };
}

/**
 * Computes exp(x) for x <= 0, one value or four, because WGSL's exp may be off by 3 + 2·|x| units in the last place.
 *
 * x = n·ln 2 + r with |r| <= ln 2 / 2; e^r is its series to r^7, off by 5e-9; 2^n is multiplied in two steps, so that it
 * may fall below 2^-126.
 */
export function expText(lanes: 1 | 4): string {
  const [V, I, U] = lanes === 4 ? ['vec4<f32>', 'vec4<i32>', 'vec4<u32>'] : ['f32', 'i32', 'u32'];
  return /* wgsl */ `
fn exp_below_zero(value: ${V}) -> ${V} {
  let x = max(value, ${V}(-150.0));
  let n = round(x * 1.44269504);
  let r = fma(n, ${V}(-1.42860677e-6), fma(n, ${V}(-0.693145752), x)); // ln 2 in two parts
  var p = fma(r, ${V}(1.0 / 5040.0), ${V}(1.0 / 720.0));
  p = fma(p, r, ${V}(1.0 / 120.0));
  p = fma(p, r, ${V}(1.0 / 24.0));
  p = fma(p, r, ${V}(1.0 / 6.0));
  p = fma(p, r, ${V}(0.5));
  p = fma(p, r, ${V}(1.0));
  p = fma(p, r, ${V}(1.0));
  let high = ${I}(n) / 2;
  let low = ${I}(n) - high;
  return p * bitcast<${V}>((high + 127) << ${U}(23u)) * bitcast<${V}>((low + 127) << ${U}(23u));
}
`;
}

/**
 * Computes softcap · tanh(score / softcap), because WGSL's tanh may be off by far more. Near 0 it uses the series, as the
 * quotient of exponentials would lose digits there. It needs {@link expText}.
 */
export function capText(lanes: 1 | 4): string {
  const [V, one] = lanes === 4 ? ['vec4<f32>', 'vec4<f32>(1.0)'] : ['f32', '1.0'];
  return /* wgsl */ `
fn cap(score: ${V}, softcap: f32) -> ${V} {
  let y = score / softcap;
  let size = abs(y);
  let z = exp_below_zero(-2.0 * size);
  let square = min(size * size, ${one}); // it must not overflow where it is not used
  var p = fma(square, ${V}(-17.0 / 315.0), ${V}(2.0 / 15.0));
  p = fma(p, square, ${V}(-1.0 / 3.0));
  let near = fma(size * square, p, size);
  let tanh = select(near, (1.0 - z) / (1.0 + z), size >= ${V}(0.125)); // of a NaN near, which is one
  return softcap * select(tanh, -tanh, y < ${V}(0.0));
}
`;
}
