#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "rope.h"

static const char *failed; /* the first error of CUDA in a case */
static void check(cudaError_t status) { if (status != cudaSuccess && !failed) failed = cudaGetErrorString(status); }

static void *onDevice(const void *data, size_t size) {
  void *to = NULL;
  check(cudaMalloc(&to, size ? size : 1));
  if (data) check(cudaMemcpy(to, data, size, cudaMemcpyHostToDevice));
  return to;
}

/* A failure of the case, which verify reports, and not a skip. */
static void endIfFailed(void) {
  if (failed) { fprintf(stderr, "CUDA: %s\n", failed); exit(1); }
}

/* The program's first argument: the number of a device. */
static const char *openDevice(const char *name) {
  return cudaSetDevice(name ? atoi(name) : 0) == cudaSuccess ? NULL : "CUDA has no such device here";
}
