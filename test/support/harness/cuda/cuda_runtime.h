/* CUDA on the host, one thread after another: enough for the harness's kernel. Launches are rewritten to onHost(). */
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#define __global__
#define __device__
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
static struct { int x; } blockIdx, threadIdx, blockDim;
inline cudaError_t cudaMalloc(void **to, size_t size) { *to = malloc(size); return cudaSuccess; }
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int) { memcpy(to, from, size); return cudaSuccess; }
inline cudaError_t cudaFree(void *data) { free(data); return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device; }
inline const char *cudaGetErrorString(cudaError_t) { return "an error"; }

template <typename Kernel, typename... Arguments> void onHost(int grid, int block, Kernel kernel, Arguments... arguments) {
  blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
    for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) kernel(arguments...);
}
