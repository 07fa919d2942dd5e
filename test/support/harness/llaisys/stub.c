/* A stub of LLAISYS' library: tensors in host memory, and three operators in f32. The other functions are missing. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  size_t shape[8], rank, bytes;
  int dtype;
  void *data;
} Tensor;

static size_t count(const Tensor *t) {
  size_t n = 1;
  for (size_t d = 0; d < t->rank; d++) n *= t->shape[d];
  return n;
}

Tensor *tensorCreate(const size_t *shape, size_t rank, int dtype, int device, int id) {
  (void)device, (void)id;
  Tensor *t = calloc(1, sizeof *t);
  memcpy(t->shape, shape, rank * sizeof *shape);
  t->rank = rank, t->dtype = dtype;
  t->bytes = count(t) * (dtype == 13 ? 4 : dtype == 6 ? 8 : 2);
  t->data = calloc(t->bytes + 1, 1);
  return t;
}
void tensorDestroy(Tensor *t) { free(t->data), free(t); }
void tensorLoad(Tensor *t, const void *data) { memcpy(t->data, data, t->bytes); }
void *tensorGetData(Tensor *t) { return t->data; }

void llaisysAdd(Tensor *c, const Tensor *a, const Tensor *b) {
  if (a->dtype != 13) return; /* a library that does nothing for f16 */
  for (size_t n = 0; n < count(a); n++) ((float *)c->data)[n] = ((float *)a->data)[n] + ((float *)b->data)[n];
}
void llaisysRmsNorm(Tensor *out, const Tensor *in, const Tensor *weight, float eps) {
  const size_t width = in->shape[in->rank - 1];
  const float *x = in->data, *w = weight->data;
  for (size_t row = 0; row < count(in); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; i++) squares += (double)x[row + i] * x[row + i];
    for (size_t i = 0; i < width; i++)
      ((float *)out->data)[row + i] = (float)(w[i] * x[row + i] / sqrt(squares / width + eps));
  }
}
void llaisysROPE(Tensor *out, const Tensor *in, const Tensor *ids, float theta) {
  const size_t heads = in->shape[1], d = in->shape[2], half = d / 2;
  for (size_t n = 0; n < count(in); n += d)
    for (size_t j = 0; j < half; j++) {
      const double angle = (double)((int64_t *)ids->data)[n / d / heads] * pow(theta, -2.0 * j / d);
      const float *x = (float *)in->data + n;
      ((float *)out->data)[n + j] = (float)(x[j] * cos(angle) - x[j + half] * sin(angle));
      ((float *)out->data)[n + j + half] = (float)(x[j] * sin(angle) + x[j + half] * cos(angle));
    }
}
