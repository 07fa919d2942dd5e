#ifndef __cplusplus
#define _POSIX_C_SOURCE 200112L /* clock_gettime */
#endif
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum { F32, F16, BF16, F64, OTHER_TYPE } Type;
typedef enum { HALF, INTERLEAVED, INTERLEAVED_TO_HALF } Pairing;

/* One tensor to rotate. Strides are in elements: from batch to batch, token to token, head to head; within a head 1. */
typedef struct {
  void *y;       /* yType; zeros, or what a cache held before */
  const void *x; /* xType */
  Type xType, yType;
  long batch, seq, heads, headDim, xStride[3], yStride[3];
  const int64_t *positions;  /* [axes, batch, seq] */
  long axes;                 /* 1 unless it is M-RoPE */
  const int64_t *rows;       /* [batch, seq]: the row of the cache y that a token goes to; NULL: y is no cache */
  Pairing pairing;           /* pair j is (j, j + rotaryDim/2), (2j, 2j+1), or reads the second and writes the first */
  long rotaryDim, rotaryOffset;
  const double *invFreq;     /* [rotaryDim/2], radians for a position; base and scaling are in it */
  const int64_t *axis;       /* [rotaryDim/2]: the axis of positions that pair j takes */
  double base;
  const char *scaling;       /* none, linear, llama3, yarn, … */
  double magnitude;          /* multiplies cos and sin: YaRN, LongRoPE */
  int backward;              /* 1: the transpose: sin with the other sign, reads where forward writes */
  const void *weight;        /* [headDim], xType: RMS norm of the head before the rotation; NULL: none */
  double eps;
  const char *beyond;        /* what a kernel of q, positions and base does not have, such as "needs M-RoPE"; "": nothing */
  const char *json;          /* the whole header of the case, with the model's spec */
} Rope;

/* Element i of an array, and the store that rounds once, to nearest even. */
static inline double load(const void *from, Type type, long i) {
  if (type == F32) return ((const float *)from)[i];
  if (type == F64) return ((const double *)from)[i];
  const unsigned bits = ((const uint16_t *)from)[i], m = type == F16 ? 10 : 7, ones = type == F16 ? 31 : 255;
  const unsigned exponent = bits >> m & ones, fraction = bits & ((1u << m) - 1);
  const int lowest = 2 - (int)(ones + 1) / 2 - (int)m; /* of the smallest number */
  const double v = exponent == ones ? (fraction ? NAN : INFINITY)
                   : exponent       ? ldexp(fraction + (1u << m), lowest + (int)exponent - 1)
                                    : ldexp(fraction, lowest);
  return bits >> 15 ? -v : v;
}

static inline void store(void *to, Type type, long i, double v) {
  if (type == F32) { ((float *)to)[i] = (float)v; return; }
  if (type == F64) { ((double *)to)[i] = v; return; }
  const int m = type == F16 ? 10 : 7, low = type == F16 ? -14 : -126;
  const long infinity = type == F16 ? 0x7c00 : 0x7f80;
  long bits = 0;
  int e = 0;
  if (isnan(v)) bits = infinity | 1L << (m - 1);
  else if (isinf(v)) bits = infinity;
  else if (v != 0) {
    frexp(v, &e);
    const int unit = (e - 1 > low ? e - 1 : low) - m; /* the exponent of the last place */
    bits = (long)rint(ldexp(fabs(v), -unit)) + ((long)(unit - (low - m)) << m);
    if (bits > infinity) bits = infinity;
  }
  ((uint16_t *)to)[i] = (uint16_t)(bits | (signbit(v) ? 0x8000 : 0));
}

/* verify --perf times what is between begin() and end(), and nothing else. A kernel on a device needs its device's clock. */
static double took; /* seconds of all kernels of a case; below 0: none was timed */
#ifndef DEVICE_CLOCK
static struct timespec began;
static inline void begin(void) { clock_gettime(CLOCK_MONOTONIC, &began); }
static inline void end(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  took = (took < 0 ? 0 : took) + (double)(now.tv_sec - began.tv_sec) + 1e-9 * (double)(now.tv_nsec - began.tv_nsec);
}

/* What a kernel is compared with: a copy that reads and writes `size` bytes. */
static inline void timeCopy(size_t size) {
  unsigned char *from = (unsigned char *)malloc(size + 1), *to = (unsigned char *)malloc(size + 1);
  if (from && to) {
    memset(from, 1, size + 1), memset(to, 2, size + 1); /* the system gives memory at the first write */
    begin();
    memcpy(to, from, size);
    end();
    if (((volatile unsigned char *)to)[size / 2] == 3) took = -1; /* never: so that the copy is not left out */
  }
  free(from);
  free(to);
}
#endif
