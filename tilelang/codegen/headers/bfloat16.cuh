// SPDX-License-Identifier: Apache-2.0
// bfloat16: names that TVM's text uses and cuda_bf16.h lacks. max and min take the number where one side is NaN, as fmaxf does.
using nv_bfloat164 = tl_vector4<nv_bfloat16>;
TL_DEVICE nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return nv_bfloat164(x, y, z, w);
}
TL_DEVICE nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return nv_bfloat162(x, y); }
TL_DEVICE nv_bfloat16 max(nv_bfloat16 a, nv_bfloat16 b) { return __hmax(a, b); }
TL_DEVICE nv_bfloat16 min(nv_bfloat16 a, nv_bfloat16 b) { return __hmin(a, b); }
TL_DEVICE unsigned __pack_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) {
  return (unsigned)__bfloat16_as_ushort(x) | ((unsigned)__bfloat16_as_ushort(y) << 16);
}
TL_DEVICE nv_bfloat16 hpow(nv_bfloat16 x, nv_bfloat16 y) {
  return __float2bfloat16_rn(powf(__bfloat162float(x), __bfloat162float(y)));
}
TL_DEVICE nv_bfloat16 htan(nv_bfloat16 x) { return __float2bfloat16_rn(tanf(__bfloat162float(x))); }
TL_DEVICE nv_bfloat16 hatan(nv_bfloat16 x) { return __float2bfloat16_rn(atanf(__bfloat162float(x))); }
TL_DEVICE nv_bfloat16 herf(nv_bfloat16 x) { return __float2bfloat16_rn(erff(__bfloat162float(x))); }
