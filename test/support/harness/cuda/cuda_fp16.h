/* A 16-bit float of `m` bits of fraction and `low` as its lowest exponent, rounded to nearest even. */
#pragma once
#include <cmath>
#include <cstdint>
template <int m, int low> struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit Float16(float v) {
    int e = 0;
    std::frexp(v, &e);
    const int unit = (e - 1 > low ? e - 1 : low) - m;
    bits = v == 0 ? 0 : (uint16_t)(std::rint(std::ldexp(std::fabs(v), -unit)) + ((unit - low + m) << m));
    if (std::signbit(v)) bits |= 0x8000;
  }
  operator float() const {
    const int exponent = (bits & 0x7fff) >> m, fraction = bits & ((1 << m) - 1);
    const float v = std::ldexp((float)(exponent ? fraction + (1 << m) : fraction), low - m + (exponent ? exponent - 1 : 0));
    return bits >> 15 ? -v : v;
  }
};
typedef Float16<10, -14> __half;
