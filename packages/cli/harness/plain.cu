#include "cuda.h"

/* PASTE YOUR KERNEL HERE, and call it from launch(): it rotates q [tokens, heads, headDim] in place. This one pairs
   halves; its angles are f32; a thread for each head of each token. */
template <typename T>
static __global__ void kernel(T *q, const int64_t *positions, float base, long tokens, long heads, long headDim) {
  const long n = (long)blockIdx.x * blockDim.x + threadIdx.x, half = headDim / 2;
  if (n >= tokens * heads) return;
  q += n * headDim;
  for (long j = 0; j < half; j++) {
    const float angle = (float)positions[n / heads] * powf(base, -2.0f * (float)j / (float)headDim);
    const float c = cosf(angle), s = sinf(angle), q0 = (float)q[j], q1 = (float)q[j + half];
    q[j] = T(q0 * c - q1 * s);
    q[j + half] = T(q0 * s + q1 * c);
  }
}

template <typename T> static void launch(void *q, const void *positions, const Rope *r) {
  const long tokens = r->batch * r->seq;
  const int block = 128, grid = (int)((tokens * r->heads + block - 1) / block);
  kernel<T><<<grid, block>>>((T *)q, (const int64_t *)positions, (float)r->base, tokens, r->heads, r->headDim);
}

/* Calls the kernel. Returns NULL, or why the kernel cannot do this case: a skip, by name, and no failure. */
static const char *rope(const Rope *r) {
  if (*r->beyond) return r->beyond; /* scaling, M-RoPE, a window, a norm, a cache, backward, heads first */
  if (r->pairing != HALF) return "needs interleaved pairing";
  if (r->rotaryDim != r->headDim) return "needs a rotary_dim below head_dim";
  if (r->xType == F64) return "needs f64";
  const long tokens = r->batch * r->seq;
  const size_t size = (size_t)(tokens * r->heads * r->headDim) * (r->xType == F32 ? 4 : 2);
  failed = NULL;
  void *q = onDevice(r->x, size), *positions = onDevice(r->positions, 8 * (size_t)tokens);
  begin();
  if (!failed && r->xType == F32) launch<float>(q, positions, r);
  if (!failed && r->xType == F16) launch<__half>(q, positions, r);
  if (!failed && r->xType == BF16) launch<__nv_bfloat16>(q, positions, r);
  end();
  check(cudaGetLastError());
  check(cudaMemcpy(r->y, q, size, cudaMemcpyDeviceToHost)); /* waits for the kernel */
  cudaFree(q);
  cudaFree(positions);
  endIfFailed();
  return NULL;
}

#include "protocol.h"
