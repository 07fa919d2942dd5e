#include "rope.h"

/* PASTE YOUR KERNEL HERE: it reads r->x and writes r->y. Returns NULL, or why it cannot do this case (a skip). */
static const char *rope(const Rope *r) {
  const long pairs = r->rotaryDim / 2;
  const int reads = r->backward && r->pairing == INTERLEAVED_TO_HALF ? HALF : r->pairing;
  const int writes = r->backward || r->pairing != INTERLEAVED_TO_HALF ? r->pairing : HALF;
  double head[4096];
  if (r->headDim > 4096) return "heads up to 4096 only";
  begin();
  for (long b = 0; b < r->batch; b++)
    for (long s = 0; s < r->seq; s++) {
      const long token = b * r->seq + s, row = r->rows ? r->rows[token] : s;
      if (row < 0) continue; /* a token that is not written */
      for (long h = 0; h < r->heads; h++) {
        const long from = b * r->xStride[0] + s * r->xStride[1] + h * r->xStride[2];
        const long to = b * r->yStride[0] + row * r->yStride[1] + h * r->yStride[2];
        double squares = 0;
        for (long i = 0; i < r->headDim; i++) head[i] = load(r->x, r->xType, from + i), squares += head[i] * head[i];
        if (r->weight) {
          const double rms = sqrt(squares / (double)r->headDim + r->eps);
          for (long i = 0; i < r->headDim; i++) head[i] = load(r->weight, r->xType, i) * head[i] / rms;
        }
        for (long i = 0; i < r->headDim; i++) store(r->y, r->yType, to + i, head[i]);
        for (long j = 0; j < pairs; j++) {
          const double angle = (double)r->positions[r->axis[j] * r->batch * r->seq + token] * r->invFreq[j];
          const double cosine = cos(angle) * r->magnitude, sine = sin(angle) * (r->backward ? -1 : 1) * r->magnitude;
          const long i0 = r->rotaryOffset + (reads == HALF ? j : 2 * j), i1 = i0 + (reads == HALF ? pairs : 1);
          const long o0 = r->rotaryOffset + (writes == HALF ? j : 2 * j), o1 = o0 + (writes == HALF ? pairs : 1);
          store(r->y, r->yType, to + o0, head[i0] * cosine - head[i1] * sine);
          store(r->y, r->yType, to + o1, head[i0] * sine + head[i1] * cosine);
        }
      }
    }
  end();
  return NULL;
}

/* Opens a device, if your kernel needs one. Returns NULL, or why every case is skipped. */
static const char *openDevice(const char *name) {
  (void)name; /* the program's first argument */
  return NULL;
}

#include "protocol.h"
