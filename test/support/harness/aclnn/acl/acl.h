/* Implements the part of CANN that the harness calls, on the host. The two operators follow their documentation and
   compute in the data's dtype. */
#pragma once
#include <cstdlib>
#include <cstring>
#include <vector>
#include "../../cuda/cuda_bf16.h"
typedef int aclError, aclnnStatus;
typedef void *aclrtStream;
enum aclDataType { ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_BF16 = 27 };
enum { ACL_SUCCESS = 0, ACL_FORMAT_ND = 2, ACL_MEM_MALLOC_HUGE_FIRST = 0, ACL_MEMCPY_HOST_TO_DEVICE = 1, ACL_MEMCPY_DEVICE_TO_HOST = 2 };
struct aclTensor { std::vector<int64_t> shape; aclDataType type; void *data; };
struct aclOpExecutor { const aclTensor *x, *cos, *sin; int64_t mode; aclTensor *out; };

inline aclError aclInit(const char *) { return 0; }
inline aclError aclrtSetDevice(int device) { return device; }
inline aclError aclrtCreateStream(aclrtStream *) { return 0; }
inline aclError aclrtDestroyStream(aclrtStream) { return 0; }
inline aclError aclrtSynchronizeStream(aclrtStream) { return 0; }
inline const char *aclGetRecentErrMsg() { return "an error"; }
inline aclError aclrtMalloc(void **to, size_t size, int) { *to = malloc(size); return 0; }
inline aclError aclrtFree(void *data) { free(data); return 0; }
inline aclError aclrtMemcpy(void *to, size_t, const void *from, size_t size, int) { memcpy(to, from, size); return 0; }
inline aclTensor *aclCreateTensor(const int64_t *dims, uint64_t count, aclDataType type, const int64_t *, int64_t, int,
                                  const int64_t *, uint64_t, void *data) {
  return new aclTensor{std::vector<int64_t>(dims, dims + count), type, data};
}
inline int aclDestroyTensor(const aclTensor *tensor) { delete tensor; return 0; }

/* Computes out = x · cos + rotated(x) · sin. Each head row uses the tables' row of its token. x may be out. */
template <typename T> void rotateRows(const aclOpExecutor &e) {
  const int64_t dim = e.x->shape.back(), heads = e.x->shape[e.x->shape.size() - 2], half = dim / 2;
  int64_t rows = 1;
  for (size_t n = 0; n + 1 < e.x->shape.size(); n++) rows *= e.x->shape[n];
  for (int64_t row = 0; row < rows; row++) {
    const T *x = (const T *)e.x->data + row * dim, *c = (const T *)e.cos->data + row / heads * dim, *s = (const T *)e.sin->data + row / heads * dim;
    std::vector<T> y(dim);
    for (int64_t i = 0; i < dim; i++) {
      const bool first = e.mode == 0 ? i < half : i % 2 == 0;
      const float other = (float)x[e.mode == 0 ? (i + half) % dim : i ^ 1];
      y[i] = T((float)x[i] * (float)c[i] + (first ? -other : other) * (float)s[i]);
    }
    memcpy((T *)e.out->data + row * dim, y.data(), dim * sizeof(T));
  }
}

inline aclnnStatus runRotation(void *, uint64_t, aclOpExecutor *e, aclrtStream) {
  if (e->x->type == ACL_FLOAT) rotateRows<float>(*e);
  if (e->x->type == ACL_FLOAT16) rotateRows<__half>(*e);
  if (e->x->type == ACL_BF16) rotateRows<__nv_bfloat16>(*e);
  delete e;
  return 0;
}
