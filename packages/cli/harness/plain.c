#include "rope.h"

/* PASTE YOUR KERNEL HERE: it rotates q [tokens, heads, headDim] in place. This one pairs halves; its angles are f32. */
static void kernel(float *q, const int64_t *positions, float base, long tokens, long heads, long headDim) {
  for (long t = 0; t < tokens; t++)
    for (long h = 0; h < heads; h++, q += headDim)
      for (long j = 0, half = headDim / 2; j < half; j++) {
        const float angle = (float)positions[t] * powf(base, -2.0f * (float)j / (float)headDim);
        const float c = cosf(angle), s = sinf(angle), q0 = q[j], q1 = q[j + half];
        q[j] = q0 * c - q1 * s;
        q[j + half] = q0 * s + q1 * c;
      }
}

/* Calls the kernel. Returns NULL, or why the kernel cannot do this case: a skip, by name, and no failure. */
static const char *rope(const Rope *r) {
  if (*r->beyond) return r->beyond; /* scaling, M-RoPE, a window, a norm, a cache, backward, heads first */
  if (r->pairing != HALF) return "needs interleaved pairing";
  if (r->rotaryDim != r->headDim) return "needs a rotary_dim below head_dim";
  if (r->xType != F32) return "needs a dtype other than f32";
  const long tokens = r->batch * r->seq;
  memcpy(r->y, r->x, sizeof(float) * (size_t)(tokens * r->heads * r->headDim));
  begin();
  kernel((float *)r->y, r->positions, (float)r->base, tokens, r->heads, r->headDim);
  end();
  return NULL;
}

/* Opens a device, if your kernel needs one. Returns NULL, or why every case is skipped. */
static const char *openDevice(const char *name) {
  (void)name; /* the program's first argument */
  return NULL;
}

#include "protocol.h"
