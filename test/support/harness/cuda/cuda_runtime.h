/* Runs the harness's CUDA kernel on the host, one thread after another. The test rewrites launches to onHost(). */
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#define __global__
#define __device__
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
static struct { int x; } blockIdx, threadIdx, blockDim;
inline cudaError_t cudaMalloc(void **to, size_t size) { *to = malloc(size); return cudaSuccess; }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int) { memcpy(to, from, size); return cudaSuccess; }
inline cudaError_t cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return cudaSuccess; }
typedef timespec *cudaEvent_t;
inline cudaError_t cudaEventCreate(cudaEvent_t *event) { *event = new timespec(); return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event) { return clock_gettime(CLOCK_MONOTONIC, event); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = (float)(1e3 * (double)(to->tv_sec - from->tv_sec) + 1e-6 * (double)(to->tv_nsec - from->tv_nsec));
  return cudaSuccess;
}
inline cudaError_t cudaFree(void *data) { free(data); return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device; }
inline const char *cudaGetErrorString(cudaError_t) { return "an error"; }

template <typename Kernel, typename... Arguments> void onHost(int grid, int block, Kernel kernel, Arguments... arguments) {
  blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
    for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) kernel(arguments...);
}
