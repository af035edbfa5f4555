// SPDX-License-Identifier: Apache-2.0
// float8: the names that TVM's text uses.
using fp8_e4_t = __nv_fp8_e4m3;
using fp8_e4x2_t = __nv_fp8x2_e4m3;
using fp8_e4x4_t = __nv_fp8x4_e4m3;
using fp8_e5_t = __nv_fp8_e5m2;
using fp8_e5x2_t = __nv_fp8x2_e5m2;
using fp8_e5x4_t = __nv_fp8x4_e5m2;
struct __align__(8) fp8_e4x8_t { fp8_e4_t data[8]; };
struct __align__(16) fp8_e4x16_t { fp8_e4_t data[16]; };
struct __align__(8) fp8_e5x8_t { fp8_e5_t data[8]; };
struct __align__(16) fp8_e5x16_t { fp8_e5_t data[16]; };
#define TL_MAKE_FLOAT8(E)                                                                      \
  TL_DEVICE __nv_fp8x2_##E make___nv_fp8x2_##E(__nv_fp8_##E a, __nv_fp8_##E b) {               \
    __nv_fp8x2_##E r;                                                                          \
    r.__x = (unsigned short)(a.__x | (b.__x << 8));                                            \
    return r;                                                                                  \
  }                                                                                            \
  TL_DEVICE __nv_fp8x4_##E make___nv_fp8x4_##E(__nv_fp8_##E a, __nv_fp8_##E b, __nv_fp8_##E c, \
                                               __nv_fp8_##E d) {                               \
    __nv_fp8x4_##E r;                                                                          \
    r.__x = a.__x | (b.__x << 8) | (c.__x << 16) | ((unsigned)d.__x << 24);                    \
    return r;                                                                                  \
  }                                                                                            \
  TL_DEVICE nv_bfloat162 cast_to_nv_bfloat162(const __nv_fp8x2_##E& v) {                       \
    __nv_fp8_##E a, b;                                                                         \
    a.__x = (unsigned char)v.__x;                                                              \
    b.__x = (unsigned char)(v.__x >> 8);                                                       \
    return nv_bfloat162(nv_bfloat16((float)a), nv_bfloat16((float)b));                         \
  }
TL_MAKE_FLOAT8(e4m3)
TL_MAKE_FLOAT8(e5m2)
#undef TL_MAKE_FLOAT8
// Conversions round to nearest even and saturate, NaN aside; e5m2 has infinities, so values beyond the last one that
// rounds to a finite number are set apart. Before sm_89 the toolkit's function does it all. Two numbers at a time: the
// first is the low byte.
#if __CUDA_ARCH__ < 890
TL_DEVICE unsigned tl_float8_pair_e5m2(float x, float y) {
  return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2) | (__nv_cvt_float_to_fp8(y, __NV_NOSAT, __NV_E5M2) << 8);
}
TL_DEVICE unsigned tl_float8_pair_e4m3(float x, float y) {
  return __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E4M3);
}
#else
TL_DEVICE unsigned tl_float8_pair_e5m2(float x, float y) {
  unsigned short r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(y), "f"(x));
  unsigned low = fabsf(x) >= 61440.0f ? (r & 0x80) | 0x7C : r & 0xFF;
  return low | (fabsf(y) >= 61440.0f ? (r & 0x8000) | 0x7C00 : r & 0xFF00);
}
TL_DEVICE unsigned tl_float8_pair_e4m3(float x, float y) {
  unsigned short r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(y), "f"(x));
  return r;
}
#endif
#define TL_TO_FLOAT8(E)                                                                        \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8_##E tl_to_fp8_##E(const T& x) {                                           \
    __nv_fp8_##E r;                                                                            \
    r.__x = (unsigned char)tl_float8_pair_##E((float)x, 0.0f);                                 \
    return r;                                                                                  \
  }                                                                                            \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8x2_##E tl_to_fp8x2_##E(const T& v) {                                       \
    __nv_fp8x2_##E r;                                                                          \
    r.__x = (unsigned short)tl_float8_pair_##E((float)v.x, (float)v.y);                        \
    return r;                                                                                  \
  }                                                                                            \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8x4_##E tl_to_fp8x4_##E(const T& v) {                                       \
    __nv_fp8x4_##E r;                                                                          \
    r.__x = tl_float8_pair_##E((float)v.x, (float)v.y) |                                       \
            (tl_float8_pair_##E((float)v.z, (float)v.w) << 16);                                \
    return r;                                                                                  \
  }
TL_TO_FLOAT8(e4m3)
TL_TO_FLOAT8(e5m2)
#undef TL_TO_FLOAT8
