/* A rope_kernel_launch for `harness ascendc`, on the host: interleaved pairs, or halves with -DHALVES. */
#include <cstddef>
#include "../cuda/cuda_bf16.h"
#ifdef HALVES
static const bool halves = true;
#else
static const bool halves = false;
#endif

template <typename T>
static int32_t rotate(T *y, const T *x, const int32_t *pos, const T *sin, const T *cos, size_t seq, size_t heads, size_t dim,
                      ptrdiff_t ys, ptrdiff_t yh, ptrdiff_t xs, ptrdiff_t xh) {
  const ptrdiff_t half = (ptrdiff_t)dim / 2;
  for (ptrdiff_t t = 0; t < (ptrdiff_t)seq; t++)
    for (ptrdiff_t h = 0; h < (ptrdiff_t)heads; h++)
      for (ptrdiff_t j = 0; j < half; j++) {
        const ptrdiff_t i0 = halves ? j : 2 * j, i1 = halves ? j + half : i0 + 1;
        const float c = (float)cos[pos[t] * half + j], s = (float)sin[pos[t] * half + j];
        const float a = (float)x[t * xs + h * xh + i0], b = (float)x[t * xs + h * xh + i1];
        y[t * ys + h * yh + i0] = T(a * c - b * s);
        y[t * ys + h * yh + i1] = T(a * s + b * c);
      }
  return 0;
}

extern "C" int32_t rope_kernel_launch(void *y, void *x, void *pos, void *sin, void *cos, size_t seq_len, size_t nhead, size_t dhead,
                                      int32_t data_type, int32_t pos_type, ptrdiff_t ys, ptrdiff_t yh, ptrdiff_t xs, ptrdiff_t xh, void *) {
  const int32_t *at = (const int32_t *)pos;
  if (pos_type != 5) return 10;
  if (data_type == 12) return rotate((__half *)y, (__half *)x, at, (__half *)sin, (__half *)cos, seq_len, nhead, dhead, ys, yh, xs, xh);
  if (data_type == 13) return rotate((float *)y, (float *)x, at, (float *)sin, (float *)cos, seq_len, nhead, dhead, ys, yh, xs, xh);
  return 10; /* as the documentation's kernel */
}
