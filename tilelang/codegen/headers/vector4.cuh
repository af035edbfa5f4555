// SPDX-License-Identifier: Apache-2.0
// Four 16-bit floats, the type that TVM's text calls half4 and nv_bfloat164.
template <typename T>
struct __align__(8) tl_vector4 {
  T x, y, z, w;
  TL_DEVICE tl_vector4() {}
  TL_DEVICE tl_vector4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
  TL_DEVICE explicit tl_vector4(float4 v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
  TL_DEVICE explicit operator float4() const {
    return make_float4((float)x, (float)y, (float)z, (float)w);
  }
#ifdef TL_FLOAT8
  template <typename F8, typename F8x4>
  TL_DEVICE void tl_unpack(const F8x4& v) {
    F8 e[4];
    for (int i = 0; i < 4; ++i) e[i].__x = (unsigned char)(v.__x >> (8 * i));
    x = T((float)e[0]);
    y = T((float)e[1]);
    z = T((float)e[2]);
    w = T((float)e[3]);
  }
  TL_DEVICE explicit tl_vector4(const __nv_fp8x4_e4m3& v) { tl_unpack<__nv_fp8_e4m3>(v); }
  TL_DEVICE explicit tl_vector4(const __nv_fp8x4_e5m2& v) { tl_unpack<__nv_fp8_e5m2>(v); }
  TL_DEVICE explicit operator __nv_fp8x4_e4m3() const { return __nv_fp8x4_e4m3((float4)*this); }
  TL_DEVICE explicit operator __nv_fp8x4_e5m2() const { return __nv_fp8x4_e5m2((float4)*this); }
#endif
};
