// SPDX-License-Identifier: Apache-2.0
// float8_e8m0fnu, powers of two: the sign is dropped, the nearest one taken, the greater one from the middle on; 0 becomes
// the least, which is a subnormal float32, and what is too large NaN.
using fp8_e8_t = __nv_fp8_e8m0;
template <typename T>
TL_DEVICE __nv_fp8_e8m0 tl_to_fp8_e8m0(const T& x) {
  unsigned a = __float_as_uint((float)x) & 0x7FFFFFFFu, exponent = a >> 23, fraction = a & 0x7FFFFFu;
  __nv_fp8_e8m0 r;
  r.__x = (unsigned char)(exponent + (fraction >= (exponent ? 0x400000u : 0x400001u) && exponent < 255u));
  return r;
}
TL_DEVICE float tl_from_fp8_e8m0(const __nv_fp8_e8m0& v) {
  unsigned x = v.__x;
  return __uint_as_float(x == 255u ? 0x7FC00000u : x ? x << 23 : 0x400000u);
}
