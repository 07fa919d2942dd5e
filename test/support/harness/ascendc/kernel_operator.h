/* Implements the part of AscendC that emitted kernels call, on the host, block after block. */
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>
#include "../cuda/cuda_bf16.h"
#define __global__
#define __aicore__
#define __gm__
#define GM_ADDR uint8_t *
typedef __half half;
typedef __nv_bfloat16 bfloat16_t;

namespace AscendC {
inline int64_t stubBlock = 0;
inline int64_t GetBlockIdx() { return stubBlock; }

template <typename T> struct GlobalTensor {
  T *data = nullptr;
  void SetGlobalBuffer(T *to) { data = to; }
  T GetValue(uint64_t i) const { return data[i]; }
  GlobalTensor operator[](uint64_t i) const { return {data + i}; }
};
template <typename T> struct LocalTensor {
  T *data = nullptr;
  T GetValue(uint32_t i) const { return data[i]; }
  void SetValue(uint32_t i, T value) const { data[i] = value; }
  LocalTensor operator[](uint32_t i) const { return {data + i}; }
  template <typename U> LocalTensor<U> ReinterpretCast() const { return {(U *)data}; }
};

enum class QuePosition { VECIN, VECOUT };
enum class TPosition { VECCALC };
/* Instructions that read whole repeats go past small buffers, as on the device. */
inline uint8_t *room(size_t bytes) { return (uint8_t *)calloc(bytes + 1024, 1); }
template <QuePosition, int> struct TQue {
  std::vector<uint8_t *> free, used;
  std::deque<uint8_t *> entered;
  template <typename T> LocalTensor<T> AllocTensor() {
    if (free.empty()) { fprintf(stderr, "AllocTensor: no free buffer\n"); exit(1); }
    uint8_t *one = free.front();
    free.erase(free.begin());
    return {(T *)one};
  }
  template <typename T> void EnQue(const LocalTensor<T> &one) { entered.push_back((uint8_t *)one.data); }
  template <typename T> LocalTensor<T> DeQue() {
    if (entered.empty()) { fprintf(stderr, "DeQue: nothing was put in\n"); exit(1); }
    uint8_t *one = entered.front();
    entered.pop_front();
    return {(T *)one};
  }
  template <typename T> void FreeTensor(const LocalTensor<T> &one) { free.push_back((uint8_t *)one.data); }
};
template <TPosition> struct TBuf {
  uint8_t *data = nullptr;
  template <typename T> LocalTensor<T> Get() { return {(T *)data}; }
};
struct TPipe {
  template <QuePosition P, int N> void InitBuffer(TQue<P, N> &queue, int num, uint32_t bytes) {
    for (int n = 0; n < num; n++) queue.free.push_back(room(bytes));
  }
  template <TPosition P> void InitBuffer(TBuf<P> &buffer, uint32_t bytes) { buffer.data = room(bytes); }
};

struct DataCopyExtParams { uint16_t blockCount; uint32_t blockLen, srcStride, dstStride, rsv; };
template <typename T> struct DataCopyPadExtParams { bool isPad; uint8_t leftPadding, rightPadding; uint64_t padValue; };
template <typename T> void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, uint32_t count) { memcpy(dst.data, src.data, count * sizeof(T)); }
template <typename T> void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count) { memcpy(dst.data, src.data, count * sizeof(T)); }
inline uint32_t padded(uint32_t bytes) { return (bytes + 31) / 32 * 32; }
template <typename T>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &p, const DataCopyPadExtParams<T> &) {
  for (uint32_t n = 0; n < p.blockCount; n++)
    memcpy((uint8_t *)dst.data + n * (padded(p.blockLen) + p.dstStride * 32), (uint8_t *)src.data + n * (p.blockLen + p.srcStride), p.blockLen);
}
template <typename T> void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &p) {
  for (uint32_t n = 0; n < p.blockCount; n++)
    memcpy((uint8_t *)dst.data + n * (p.blockLen + p.dstStride), (uint8_t *)src.data + n * (padded(p.blockLen) + p.srcStride * 32), p.blockLen);
}

struct BinaryRepeatParams { uint8_t dstBlk, src0Blk, src1Blk, dst, src0, src1; };
struct UnaryRepeatParams { uint16_t dstBlk, srcBlk; uint8_t dst, src; };
struct CopyRepeatParams { uint16_t dstBlk, srcBlk, dst, src; };
struct Mask {
  uint64_t words[2];
  Mask(int n) : words{n >= 64 ? ~0ull : (1ull << n) - 1, n > 64 ? (n >= 128 ? ~0ull : (1ull << (n - 64)) - 1) : 0} {}
  Mask(const uint64_t *given) : words{given[0], given[1]} {}
  bool operator[](int lane) const { return words[lane >> 6] >> (lane & 63) & 1; }
};
/* Calls f(element of dst, of src0, of src1) for each lane that the mask has, repeat after repeat. */
template <typename T, typename F> void eachLane(const Mask &mask, int repeats, int dst, int src0, int src1, F f) {
  const int block = 32 / sizeof(T);
  for (int r = 0; r < repeats; r++)
    for (int lane = 0; lane < 8 * block; lane++)
      if (mask[lane]) f(r * dst * block + lane, r * src0 * block + lane, r * src1 * block + lane);
}
#define TWO(NAME, EXPRESSION)                                                                                        \
  template <typename T> void NAME(LocalTensor<T> d, LocalTensor<T> s, LocalTensor<T> t, int count) {                 \
    for (int i = 0; i < count; i++) { const float a = (float)s.data[i], b = (float)t.data[i]; d.data[i] = T(EXPRESSION); } \
  }                                                                                                                  \
  template <typename T> void NAME(LocalTensor<T> d, LocalTensor<T> s, LocalTensor<T> t, Mask mask, int repeats, const BinaryRepeatParams &p) { \
    eachLane<T>(mask, repeats, p.dst, p.src0, p.src1, [&](int i, int j, int k) { const float a = (float)s.data[j], b = (float)t.data[k]; d.data[i] = T(EXPRESSION); }); \
  }
TWO(Mul, a * b)
TWO(Add, a + b)
TWO(Sub, a - b)
TWO(Div, a / b)
TWO(Max, a > b ? a : b)
#define ONE(NAME, EXPRESSION)                                                                       \
  template <typename T> void NAME(LocalTensor<T> d, LocalTensor<T> s, int count) {                  \
    for (int i = 0; i < count; i++) { const float a = (float)s.data[i]; d.data[i] = T(EXPRESSION); } \
  }
ONE(Abs, std::fabs(a))
ONE(Exp, (float)std::exp((double)a))
ONE(Sqrt, std::sqrt(a))
ONE(Rsqrt, (float)(1 / std::sqrt((double)a)))
ONE(Reciprocal, 1 / a)
template <typename T> void Muls(LocalTensor<T> d, LocalTensor<T> s, T v, int count) { for (int i = 0; i < count; i++) d.data[i] = T((float)s.data[i] * (float)v); }
template <typename T> void Muls(LocalTensor<T> d, LocalTensor<T> s, T v, Mask mask, int repeats, const UnaryRepeatParams &p) {
  eachLane<T>(mask, repeats, p.dst, p.src, 0, [&](int i, int j, int) { d.data[i] = T((float)s.data[j] * (float)v); });
}
template <typename T> void Maxs(LocalTensor<T> d, LocalTensor<T> s, T v, int count) { for (int i = 0; i < count; i++) d.data[i] = s.data[i] > v ? s.data[i] : v; }
template <typename T> void Adds(LocalTensor<T> d, LocalTensor<T> s, T v, int count) { for (int i = 0; i < count; i++) d.data[i] = T(s.data[i] + v); }
template <typename T> void Duplicate(LocalTensor<T> d, T v, int count) { for (int i = 0; i < count; i++) d.data[i] = v; }
template <typename T> void Copy(LocalTensor<T> d, LocalTensor<T> s, Mask mask, int repeats, const CopyRepeatParams &p) {
  eachLane<T>(mask, repeats, p.dst, p.src, 0, [&](int i, int j, int) { d.data[i] = s.data[j]; });
}
enum class RoundMode { CAST_NONE, CAST_RINT };
template <typename D, typename S> void Cast(LocalTensor<D> d, LocalTensor<S> s, RoundMode, int count) { for (int i = 0; i < count; i++) d.data[i] = D((float)s.data[i]); }
struct GatherMaskParams { uint8_t src0BlockStride; uint16_t repeatTimes, src0RepeatStride; uint8_t src1RepeatStride; };
template <typename T, typename F> void keep(LocalTensor<T> d, LocalTensor<T> s, const GatherMaskParams &p, uint64_t &kept, F wanted) {
  const int lanes = 256 / sizeof(T);
  std::vector<T> all;
  for (int r = 0; r < p.repeatTimes; r++)
    for (int lane = 0; lane < lanes; lane++) if (wanted(r, lane)) all.push_back(s.data[r * p.src0RepeatStride * (32 / (int)sizeof(T)) + lane]);
  kept = all.size();
  memcpy(d.data, all.data(), kept * sizeof(T));
}
template <typename T> void GatherMask(LocalTensor<T> d, LocalTensor<T> s, uint8_t pattern, bool, uint32_t, const GatherMaskParams &p, uint64_t &kept) {
  keep(d, s, p, kept, [&](int, int lane) { return pattern == 7 || (pattern <= 2 ? lane % 2 == pattern - 1 : lane % 4 == pattern - 3); });
}
template <typename T, typename U> void GatherMask(LocalTensor<T> d, LocalTensor<T> s, LocalTensor<U> pattern, bool, uint32_t, const GatherMaskParams &p, uint64_t &kept) {
  keep(d, s, p, kept, [&](int r, int lane) { return ((uint8_t *)pattern.data)[r * p.src1RepeatStride * 32 + lane / 8] >> lane % 8 & 1; });
}
template <typename T> void Gather(LocalTensor<T> d, LocalTensor<T> s, LocalTensor<uint32_t> offsets, uint32_t base, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) d.data[i] = s.data[(base + offsets.data[i]) / sizeof(T)];
}
enum class ReduceOrder { ORDER_ONLY_VALUE };
template <typename T, typename F> void reduce(LocalTensor<T> d, LocalTensor<T> s, int mask, int repeats, int dst, int src, F of) {
  for (int r = 0; r < repeats; r++) {
    std::vector<T> lanes(s.data + r * src * (32 / (int)sizeof(T)), s.data + r * src * (32 / (int)sizeof(T)) + mask);
    for (int width = mask; width > 1; width = (width + 1) / 2)
      for (int i = 0; 2 * i < width; i++) lanes[i] = 2 * i + 1 < width ? T(of((float)lanes[2 * i], (float)lanes[2 * i + 1])) : lanes[2 * i];
    d.data[r * dst] = lanes[0];
  }
}
template <typename T> void WholeReduceSum(LocalTensor<T> d, LocalTensor<T> s, int mask, int repeats, int dst, int, int src) {
  reduce(d, s, mask, repeats, dst, src, [](float a, float b) { return a + b; });
}
template <typename T> void WholeReduceMax(LocalTensor<T> d, LocalTensor<T> s, int mask, int repeats, int dst, int, int src, ReduceOrder) {
  reduce(d, s, mask, repeats, dst, src, [](float a, float b) { return a > b ? a : b; });
}
enum pipe_t { PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };
template <pipe_t P> void PipeBarrier() {}
enum class HardEvent { MTE2_V, V_MTE2, V_MTE3, MTE3_V, V_S, S_V, MTE2_S, S_MTE2, MTE3_S, S_MTE3, MTE2_MTE3, MTE3_MTE2 };
template <HardEvent E> void SetFlag(int) {}
template <HardEvent E> void WaitFlag(int) {}
}
