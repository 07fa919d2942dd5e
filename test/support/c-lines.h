/* The functions of CUDA that the lines in C of known bugs use, for a C compiler: a narrow number is held as the float that it is. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

typedef struct { double value; } __half;
typedef struct { double value; } __nv_bfloat16;

/* Rounds to a number of `bits` bits after the leading one, whose smallest normal exponent is `least`. */
static inline double narrow(double (*rounded)(double), double value, int bits, int least, double most) {
    if (value == 0 || !isfinite(value)) return value;
    int exponent = ilogb(value);
    double unit = ldexp(1, (exponent < least ? least : exponent) - bits);
    double result = rounded(value / unit) * unit;
    return fabs(result) > most ? copysign(INFINITY, result) : result;
}
static inline __half __float2half(double value) { return (__half){narrow(nearbyint, value, 10, -14, 65504)}; }
static inline double __half2float(__half h) { return h.value; }
static inline __half __hmul(__half a, __half b) { return __float2half(a.value * b.value); }
static inline __half __hadd(__half a, __half b) {
    /* A sum that no longer changes is asked for a million times. */
    static double last[2];
    static __half sum;
    if (a.value == last[0] && b.value == last[1]) return sum;
    last[0] = a.value, last[1] = b.value;
    return sum = __float2half(a.value + b.value);
}
static inline __nv_bfloat16 bf16(double (*rounded)(double), double value) {
    return (__nv_bfloat16){narrow(rounded, value, 7, -126, 3.3895313892515355e38)};
}
static inline __nv_bfloat16 __float2bfloat16(double value) { return bf16(nearbyint, value); }
static inline __nv_bfloat16 __float2bfloat16_rn(double value) { return bf16(nearbyint, value); }
static inline __nv_bfloat16 __float2bfloat16_rd(double value) { return bf16(floor, value); }
static inline __nv_bfloat16 __float2bfloat16_rz(double value) { return bf16(trunc, value); }
static inline double __bfloat162float(__nv_bfloat16 b) { return b.value; }
static inline float cospif(float value) { return cosf((float)M_PI * value); }
static inline float sinpif(float value) { return sinf((float)M_PI * value); }

/* The largest finite angle of a run in double. */
static double reach;
static inline double watched(double angle) {
    if (isfinite(angle) && fabs(angle) > reach) reach = fabs(angle);
    return angle;
}
