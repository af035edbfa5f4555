// SPDX-License-Identifier: Apache-2.0
// What every kernel text needs, for NVRTC (which has no host headers) and nvcc alike.
#ifdef __CUDACC_RTC__
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif
#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#ifndef __cuda_cuda_h__
struct __align__(64) CUtensorMap {
  unsigned long long opaque[16];
};
#endif
#ifndef CUDART_INF_F
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0xfff8000000000000LL)
#endif
#define TL_DEVICE __device__ __forceinline__
