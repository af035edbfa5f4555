// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that the launcher calls, loaded with dlopen when first needed.
//
// The declarations are our own, so that building needs no CUDA toolkit; testing/runtime compares them with cuda.h where
// a toolkit is present. Values are those of the driver's stable ABI (cuda.h, CUDA 12 and 13).
#ifndef TILELANG_DRIVER_H_
#define TILELANG_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace tilelang {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = void*;
using CUmodule = void*;
using CUfunction = void*;
using CUstream = void*;
using CUevent = void*;

constexpr CUresult kCudaSuccess = 0;
constexpr int kMaxDynamicSharedSizeBytes = 8;   // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kNonPortableClusterSize = 14;     // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
constexpr unsigned kLaunchCooperative = 2;      // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
constexpr unsigned kLaunchClusterDimension = 4; // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr unsigned kLaunchProgrammatic = 6;     // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

constexpr unsigned kStreamNonBlocking = 1;      // CU_STREAM_NON_BLOCKING
constexpr int kCaptureActive = 1;               // CU_STREAM_CAPTURE_STATUS_ACTIVE
constexpr int kCaptureRelaxed = 2;              // CU_STREAM_CAPTURE_MODE_RELAXED

struct alignas(128) CUtensorMap {
  uint64_t opaque[16];
};

struct CUlaunchAttribute {
  unsigned id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int flag;
  } value;
};

struct CUlaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};

// Functions of the driver; all are set once `Driver::Get()` has returned.
struct Driver {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxPushCurrent)(CUcontext);
  CUresult (*cuCtxPopCurrent)(CUcontext*);
  CUresult (*cuModuleLoadData)(CUmodule*, const void*);
  CUresult (*cuModuleUnload)(CUmodule);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*);
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int);
  CUresult (*cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**);
  CUresult (*cuTensorMapEncodeTiled)(CUtensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                                     const uint32_t*, int, int, int, int);
  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t);
  CUresult (*cuMemsetD8)(CUdeviceptr, unsigned char, size_t);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream);
  CUresult (*cuStreamCreate)(CUstream*, unsigned);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamGetId)(CUstream, unsigned long long*);
  CUresult (*cuStreamGetCaptureInfo)(CUstream, int*, unsigned long long*, void*, const void**, size_t*);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuEventCreate)(CUevent*, unsigned);
  CUresult (*cuEventDestroy)(CUevent);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float*, CUevent, CUevent);

  // Loads the driver: TILELANG_LIBCUDA, else libcuda.so.1. Throws RuntimeError where it is absent or does not start.
  static const Driver& Get();
  // Throws RuntimeError with the driver's name and text of `status` unless it is success.
  void Check(CUresult status, const char* what) const;
  // The driver's name and text of a status.
  const char* Name(CUresult status) const;
  const char* Text(CUresult status) const;
};

// Makes a device's primary context current for a scope. It is the context that torch uses, so pushing is rare.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// A few zero bytes on the current device, allocated when first asked for: stand for tensors without elements. Not before,
// since memory must not be allocated while a graph is captured.
class ZeroBytes {
 public:
  uint64_t Address(const Driver& driver);

 private:
  std::mutex mutex_;
  CUdeviceptr address_ = 0;
};

// The primary context of a device, retained for the life of the process.
CUcontext PrimaryContext(const Driver& driver, int device);

}  // namespace tilelang

#endif  // TILELANG_DRIVER_H_
