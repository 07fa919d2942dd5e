#include "cuda.h"

/* What a kernel gets, on the device; strides in elements. */
struct OnDevice {
  const int64_t *positions, *axis; /* [axes, batch, seq]; [pairs] */
  const double *invFreq;           /* [pairs] */
  long batch, seq, heads, headDim, xStride[3], yStride[3], pairs, rotaryOffset;
  double magnitude, sign; /* sign of sin: -1 backward */
  int readsHalf, writesHalf;
};

template <typename T> static __device__ double wide(T v) { return (double)(float)v; }
template <> __device__ double wide(double v) { return v; }
template <typename T> static __device__ T narrow(double v) { return T((float)v); }
template <> __device__ double narrow(double v) { return v; }

/* PASTE YOUR KERNEL HERE, and call it from launch(). This one is plain: a thread for each head of each token. */
template <typename T> static __global__ void ropeKernel(T *y, const T *x, OnDevice d) {
  const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= d.batch * d.seq * d.heads) return;
  const long h = n % d.heads, token = n / d.heads, s = token % d.seq, b = token / d.seq;
  x += b * d.xStride[0] + s * d.xStride[1] + h * d.xStride[2];
  y += b * d.yStride[0] + s * d.yStride[1] + h * d.yStride[2];
  for (long i = 0; i < d.headDim; i++) y[i] = x[i];
  for (long j = 0; j < d.pairs; j++) {
    const double angle = (double)d.positions[d.axis[j] * d.batch * d.seq + token] * d.invFreq[j];
    const double c = cos(angle) * d.magnitude, sine = sin(angle) * d.magnitude * d.sign;
    const long i0 = d.rotaryOffset + (d.readsHalf ? j : 2 * j), i1 = i0 + (d.readsHalf ? d.pairs : 1);
    const long o0 = d.rotaryOffset + (d.writesHalf ? j : 2 * j), o1 = o0 + (d.writesHalf ? d.pairs : 1);
    const double x0 = wide(x[i0]), x1 = wide(x[i1]);
    y[o0] = narrow<T>(x0 * c - x1 * sine);
    y[o1] = narrow<T>(x0 * sine + x1 * c);
  }
}

template <typename T> static void launch(void *y, const void *x, const OnDevice &d) {
  const int block = 128, grid = (int)((d.batch * d.seq * d.heads + block - 1) / block);
  ropeKernel<T><<<grid, block>>>((T *)y, (const T *)x, d);
}

/* Copies to the device, launches, copies back. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  if (r->weight) return "no norm in this harness";
  if (r->rows) return "no cache in this harness";
  const int readsHalf = r->pairing == HALF, writesHalf = r->pairing != INTERLEAVED;
  const size_t size = (size_t)(r->batch * r->xStride[0]) * (r->xType == F64 ? 8 : r->xType == F32 ? 4 : 2);
  OnDevice d = {};
  failed = NULL;
  void *x = onDevice(r->x, size), *y = onDevice(NULL, size);
  void *positions = onDevice(r->positions, 8 * (size_t)(r->axes * r->batch * r->seq));
  void *axis = onDevice(r->axis, 4 * (size_t)r->rotaryDim), *invFreq = onDevice(r->invFreq, 4 * (size_t)r->rotaryDim);
  d.positions = (const int64_t *)positions, d.axis = (const int64_t *)axis, d.invFreq = (const double *)invFreq;
  d.batch = r->batch, d.seq = r->seq, d.heads = r->heads, d.headDim = r->headDim;
  for (int n = 0; n < 3; n++) d.xStride[n] = r->xStride[n], d.yStride[n] = r->yStride[n];
  d.pairs = r->rotaryDim / 2, d.rotaryOffset = r->rotaryOffset, d.magnitude = r->magnitude, d.sign = r->backward ? -1 : 1;
  d.readsHalf = r->backward ? writesHalf : readsHalf, d.writesHalf = r->backward ? readsHalf : writesHalf;
  begin();
  if (!failed && r->xType == F32) launch<float>(y, x, d);
  if (!failed && r->xType == F64) launch<double>(y, x, d);
  if (!failed && r->xType == F16) launch<__half>(y, x, d);
  if (!failed && r->xType == BF16) launch<__nv_bfloat16>(y, x, d);
  end();
  check(cudaGetLastError());
  check(cudaMemcpy(r->y, y, size, cudaMemcpyDeviceToHost)); /* waits for the kernel */
  void *all[] = {x, y, positions, axis, invFreq};
  for (int n = 0; n < 5; n++) cudaFree(all[n]);
  endIfFailed();
  return NULL;
}

#include "protocol.h"
