// SPDX-License-Identifier: Apache-2.0
// float16: names that TVM's text uses and cuda_fp16.h lacks. max and min take the number where one side is NaN, as fmaxf does.
using half4 = tl_vector4<half>;
TL_DEVICE half4 make_half4(half x, half y, half z, half w) { return half4(x, y, z, w); }
TL_DEVICE half max(half a, half b) { return __hmax(a, b); }
TL_DEVICE half min(half a, half b) { return __hmin(a, b); }
TL_DEVICE unsigned __pack_half2(half x, half y) {
  return (unsigned)__half_as_ushort(x) | ((unsigned)__half_as_ushort(y) << 16);
}
TL_DEVICE half hpow(half x, half y) { return __float2half_rn(powf(__half2float(x), __half2float(y))); }
TL_DEVICE half htan(half x) { return __float2half_rn(tanf(__half2float(x))); }
TL_DEVICE half hatan(half x) { return __float2half_rn(atanf(__half2float(x))); }
TL_DEVICE half herf(half x) { return __float2half_rn(erff(__half2float(x))); }
