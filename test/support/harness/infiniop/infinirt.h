/* Implements the part of InfiniCore that the harness calls, on the host: a CPU, F32, F16, BF16. F64 has no kernel here. */
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "../cuda/cuda_bf16.h"
enum infiniStatus_t {
  INFINI_STATUS_SUCCESS = 0, INFINI_STATUS_NOT_IMPLEMENTED = 2, INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED = 5,
  INFINI_STATUS_BAD_TENSOR_DTYPE = 10, INFINI_STATUS_BAD_TENSOR_SHAPE = 11
};
enum infiniDevice_t { INFINI_DEVICE_CPU = 0 };
enum infiniDtype_t { INFINI_DTYPE_I32 = 5, INFINI_DTYPE_F16 = 12, INFINI_DTYPE_F32 = 13, INFINI_DTYPE_F64 = 14, INFINI_DTYPE_BF16 = 19 };
enum infinirtMemcpyKind_t { INFINIRT_MEMCPY_H2D = 1, INFINIRT_MEMCPY_D2H = 2 };
inline infiniStatus_t infinirtInit() { return INFINI_STATUS_SUCCESS; }
inline infiniStatus_t infinirtSetDevice(infiniDevice_t device, int) {
  return device == INFINI_DEVICE_CPU ? INFINI_STATUS_SUCCESS : INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
}
inline infiniStatus_t infinirtDeviceSynchronize() { return INFINI_STATUS_SUCCESS; }
inline infiniStatus_t infinirtMalloc(void **to, size_t size) { *to = malloc(size); return INFINI_STATUS_SUCCESS; }
inline infiniStatus_t infinirtFree(void *data) { free(data); return INFINI_STATUS_SUCCESS; }
inline infiniStatus_t infinirtMemcpy(void *to, const void *from, size_t size, infinirtMemcpyKind_t) {
  memcpy(to, from, size);
  return INFINI_STATUS_SUCCESS;
}

typedef int *infiniopHandle_t;
inline infiniStatus_t infiniopCreateHandle(infiniopHandle_t *) { return INFINI_STATUS_SUCCESS; }
struct InfiniopTensorDescriptor { std::vector<size_t> shape; infiniDtype_t dtype; };
typedef InfiniopTensorDescriptor *infiniopTensorDescriptor_t;
inline infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc, size_t ndim, const size_t *shape, const ptrdiff_t *,
                                                     infiniDtype_t dtype) {
  *desc = new InfiniopTensorDescriptor{std::vector<size_t>(shape, shape + ndim), dtype};
  return INFINI_STATUS_SUCCESS;
}
inline infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc) { delete desc; return INFINI_STATUS_SUCCESS; }

enum infiniopRoPEAlgo_t { INFINIOP_ROPE_ALGO_GPT_J = 0, INFINIOP_ROPE_ALGO_GPT_NEOX = 1 };
struct InfiniopDescriptor { size_t batch, seq, heads, pairs; infiniDtype_t dtype; infiniopRoPEAlgo_t algo; };
typedef InfiniopDescriptor *infiniopRoPEDescriptor_t;
inline infiniStatus_t infiniopCreateRoPEDescriptor(infiniopHandle_t, infiniopRoPEDescriptor_t *desc, infiniopTensorDescriptor_t y,
                                                   infiniopTensorDescriptor_t x, infiniopTensorDescriptor_t pos, infiniopTensorDescriptor_t sin,
                                                   infiniopTensorDescriptor_t cos, infiniopRoPEAlgo_t algo) {
  const std::vector<size_t> &s = x->shape;
  const size_t n = s.size(), pairs = s[n - 1] / 2;
  if (y->shape != s || pos->shape.size() != n - 2 || sin->shape[1] != pairs || cos->shape != sin->shape) return INFINI_STATUS_BAD_TENSOR_SHAPE;
  *desc = new InfiniopDescriptor{n == 4 ? s[0] : 1, s[n - 3], s[n - 2], pairs, x->dtype, algo};
  return INFINI_STATUS_SUCCESS;
}
inline infiniStatus_t infiniopGetRoPEWorkspaceSize(infiniopRoPEDescriptor_t, size_t *size) { *size = 8; return INFINI_STATUS_SUCCESS; }
inline infiniStatus_t infiniopDestroyRoPEDescriptor(infiniopRoPEDescriptor_t desc) { delete desc; return INFINI_STATUS_SUCCESS; }

template <typename T> void rotateRows(const InfiniopDescriptor &d, T *y, const T *x, const int32_t *pos, const T *sin, const T *cos) {
  for (size_t row = 0; row < d.batch * d.seq * d.heads; row++, x += 2 * d.pairs, y += 2 * d.pairs)
    for (size_t j = 0; j < d.pairs; j++) {
      const bool half = d.algo == INFINIOP_ROPE_ALGO_GPT_NEOX;
      const size_t a = half ? j : 2 * j, b = half ? j + d.pairs : 2 * j + 1, at = (size_t)pos[row / d.heads] * d.pairs + j;
      const float x0 = (float)x[a], x1 = (float)x[b], s = (float)sin[at], c = (float)cos[at];
      y[a] = T(x0 * c - x1 * s);
      y[b] = T(x0 * s + x1 * c);
    }
}

inline infiniStatus_t infiniopRoPE(infiniopRoPEDescriptor_t d, void *, size_t, void *y, const void *x, const void *pos, const void *sin,
                                   const void *cos, void *) {
  const int32_t *ids = (const int32_t *)pos;
  if (d->dtype == INFINI_DTYPE_F64) return INFINI_STATUS_BAD_TENSOR_DTYPE;
  if (d->dtype == INFINI_DTYPE_F32) rotateRows(*d, (float *)y, (const float *)x, ids, (const float *)sin, (const float *)cos);
  if (d->dtype == INFINI_DTYPE_F16) rotateRows(*d, (__half *)y, (const __half *)x, ids, (const __half *)sin, (const __half *)cos);
  if (d->dtype == INFINI_DTYPE_BF16)
    rotateRows(*d, (__nv_bfloat16 *)y, (const __nv_bfloat16 *)x, ids, (const __nv_bfloat16 *)sin, (const __nv_bfloat16 *)cos);
  return INFINI_STATUS_SUCCESS;
}
