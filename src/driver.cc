// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <cstdlib>
#include <vector>

namespace tilelang {

namespace {

template <typename F>
void Load(void* library, const char* symbol, F* slot) {
  void* found = dlsym(library, symbol);
  if (found == nullptr) {
    TVM_FFI_THROW(RuntimeError) << "the CUDA driver has no " << symbol << "; a driver for CUDA 12.0 or newer is needed";
  }
  *slot = reinterpret_cast<F>(found);
}

Driver LoadDriver() {
  const char* path = std::getenv("TILELANG_LIBCUDA");
  if (path == nullptr || *path == '\0') path = "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    TVM_FFI_THROW(RuntimeError) << "the CUDA driver cannot be loaded: " << dlerror();
  }
  Driver d{};
  Load(library, "cuInit", &d.cuInit);
  Load(library, "cuGetErrorName", &d.cuGetErrorName);
  Load(library, "cuGetErrorString", &d.cuGetErrorString);
  Load(library, "cuDeviceGet", &d.cuDeviceGet);
  Load(library, "cuDevicePrimaryCtxRetain", &d.cuDevicePrimaryCtxRetain);
  Load(library, "cuCtxGetCurrent", &d.cuCtxGetCurrent);
  Load(library, "cuCtxPushCurrent_v2", &d.cuCtxPushCurrent);
  Load(library, "cuCtxPopCurrent_v2", &d.cuCtxPopCurrent);
  Load(library, "cuModuleLoadData", &d.cuModuleLoadData);
  Load(library, "cuModuleUnload", &d.cuModuleUnload);
  Load(library, "cuModuleGetFunction", &d.cuModuleGetFunction);
  Load(library, "cuFuncSetAttribute", &d.cuFuncSetAttribute);
  Load(library, "cuLaunchKernelEx", &d.cuLaunchKernelEx);
  Load(library, "cuTensorMapEncodeTiled", &d.cuTensorMapEncodeTiled);
  Load(library, "cuMemAlloc_v2", &d.cuMemAlloc);
  Load(library, "cuMemsetD8_v2", &d.cuMemsetD8);
  Load(library, "cuMemFree_v2", &d.cuMemFree);
  Load(library, "cuMemsetD8Async", &d.cuMemsetD8Async);
  Load(library, "cuStreamCreate", &d.cuStreamCreate);
  Load(library, "cuStreamDestroy_v2", &d.cuStreamDestroy);
  Load(library, "cuStreamSynchronize", &d.cuStreamSynchronize);
  Load(library, "cuStreamGetId", &d.cuStreamGetId);
  Load(library, "cuStreamGetCaptureInfo_v2", &d.cuStreamGetCaptureInfo);
  Load(library, "cuThreadExchangeStreamCaptureMode", &d.cuThreadExchangeStreamCaptureMode);
  Load(library, "cuEventCreate", &d.cuEventCreate);
  Load(library, "cuEventDestroy_v2", &d.cuEventDestroy);
  Load(library, "cuEventRecord", &d.cuEventRecord);
  Load(library, "cuEventSynchronize", &d.cuEventSynchronize);
  Load(library, "cuEventElapsedTime", &d.cuEventElapsedTime);
  d.Check(d.cuInit(0), "cuInit");
  return d;
}

}  // namespace

const Driver& Driver::Get() {
  static const Driver driver = LoadDriver();
  return driver;
}

const char* Driver::Name(CUresult status) const {
  const char* name = nullptr;
  return cuGetErrorName(status, &name) == kCudaSuccess && name != nullptr ? name : "unknown error";
}

const char* Driver::Text(CUresult status) const {
  const char* text = nullptr;
  return cuGetErrorString(status, &text) == kCudaSuccess && text != nullptr ? text : "no description";
}

void Driver::Check(CUresult status, const char* what) const {
  if (status == kCudaSuccess) return;
  TVM_FFI_THROW(RuntimeError) << what << " failed: " << Name(status) << " (" << status << "): " << Text(status);
}

ContextScope::ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
  CUcontext current = nullptr;
  driver.Check(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current == context) return;
  driver.Check(driver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent(&popped);
}

uint64_t ZeroBytes::Address(const Driver& driver) {
  constexpr size_t kBytes = 256;  // more than any element, aligned for a tensor map
  std::lock_guard<std::mutex> lock(mutex_);
  if (address_ == 0) {
    driver.Check(driver.cuMemAlloc(&address_, kBytes), "cuMemAlloc");
    driver.Check(driver.cuMemsetD8(address_, 0, kBytes), "cuMemsetD8");
  }
  return address_;
}

CUcontext PrimaryContext(const Driver& driver, int device) {
  static std::mutex mutex;
  static std::vector<CUcontext> contexts;
  std::lock_guard<std::mutex> lock(mutex);
  if (device >= static_cast<int>(contexts.size())) contexts.resize(device + 1, nullptr);
  if (contexts[device] == nullptr) {
    CUdevice handle = 0;
    driver.Check(driver.cuDeviceGet(&handle, device), "cuDeviceGet");
    driver.Check(driver.cuDevicePrimaryCtxRetain(&contexts[device], handle), "cuDevicePrimaryCtxRetain");
  }
  return contexts[device];
}

}  // namespace tilelang
