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
// Conversions round to nearest even and overflow as torch's do: e5m2 to infinity, e4m3 (which has none) to NaN. The
// hardware's saturate, so values beyond the last one that rounds to a finite number are set apart. Before sm_89 the
// toolkit's function does it all.
#if __CUDA_ARCH__ < 890
TL_DEVICE unsigned char tl_float8_bits_e5m2(float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E5M2); }
TL_DEVICE unsigned char tl_float8_bits_e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_NOSAT, __NV_E4M3); }
#else
TL_DEVICE unsigned char tl_float8_bits_e5m2(float x) {
  unsigned short r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return fabsf(x) >= 61440.0f ? (unsigned char)((r & 0x80) | 0x7C) : (unsigned char)r;
}
TL_DEVICE unsigned char tl_float8_bits_e4m3(float x) {
  unsigned short r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return fabsf(x) > 464.0f ? (unsigned char)((r & 0x80) | 0x7F) : (unsigned char)r;
}
#endif
#define TL_TO_FLOAT8(E)                                                                        \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8_##E tl_to_fp8_##E(const T& x) {                                           \
    __nv_fp8_##E r;                                                                            \
    r.__x = tl_float8_bits_##E((float)x);                                                      \
    return r;                                                                                  \
  }                                                                                            \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8x2_##E tl_to_fp8x2_##E(const T& v) {                                       \
    return make___nv_fp8x2_##E(tl_to_fp8_##E(v.x), tl_to_fp8_##E(v.y));                        \
  }                                                                                            \
  template <typename T>                                                                        \
  TL_DEVICE __nv_fp8x4_##E tl_to_fp8x4_##E(const T& v) {                                       \
    return make___nv_fp8x4_##E(tl_to_fp8_##E(v.x), tl_to_fp8_##E(v.y), tl_to_fp8_##E(v.z),     \
                               tl_to_fp8_##E(v.w));                                            \
  }
TL_TO_FLOAT8(e4m3)
TL_TO_FLOAT8(e5m2)
#undef TL_TO_FLOAT8
