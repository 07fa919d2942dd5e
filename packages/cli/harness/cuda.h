#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define DEVICE_CLOCK
#include "rope.h"

static const char *failed; /* the first error of CUDA in a case */
static void check(cudaError_t status) { if (status != cudaSuccess && !failed) failed = cudaGetErrorString(status); }

static void *onDevice(const void *data, size_t size) {
  void *to = NULL;
  check(cudaMalloc(&to, size ? size : 1));
  if (data) check(cudaMemcpy(to, data, size, cudaMemcpyHostToDevice));
  return to;
}

/* Events on the device time the kernel alone, without its launch. */
static cudaEvent_t began, ended;
static void begin(void) {
  if (!began) check(cudaEventCreate(&began)), check(cudaEventCreate(&ended));
  check(cudaEventRecord(began));
}

static void end(void) {
  float ms = 0;
  check(cudaEventRecord(ended));
  check(cudaEventSynchronize(ended));
  check(cudaEventElapsedTime(&ms, began, ended));
  took = (took < 0 ? 0 : took) + ms / 1000;
}

/* What a kernel is compared with: a copy that reads and writes `size` bytes of the device. */
static void timeCopy(size_t size) {
  void *from = onDevice(NULL, size), *to = onDevice(NULL, size);
  check(cudaMemset(from, 1, size));
  begin();
  check(cudaMemcpy(to, from, size, cudaMemcpyDeviceToDevice));
  end();
  cudaFree(from);
  cudaFree(to);
}

/* A failure of the case, which verify reports, and not a skip. */
static void endIfFailed(void) {
  if (failed) { fprintf(stderr, "CUDA: %s\n", failed); exit(1); }
}

/* The program's first argument: the number of a device. */
static const char *openDevice(const char *name) {
  return cudaSetDevice(name ? atoi(name) : 0) == cudaSuccess ? NULL : "CUDA has no such device here";
}
