// SPDX-License-Identifier: Apache-2.0
// A pair of events on the caller's current stream: the device time between start and stop.
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <memory>
#include <string>

#include "driver.h"

namespace tilelang {

namespace {

namespace ffi = tvm::ffi;

class Timer {
 public:
  explicit Timer(int device) : driver_(Driver::Get()), device_(device), context_(PrimaryContext(driver_, device)) {
    ContextScope scope(driver_, context_);
    driver_.Check(driver_.cuEventCreate(&start_, 0), "cuEventCreate");
    driver_.Check(driver_.cuEventCreate(&stop_, 0), "cuEventCreate");
  }

  ~Timer() {
    driver_.cuEventDestroy(start_);
    driver_.cuEventDestroy(stop_);
  }

  void Record(bool start, void* stream) {
    ContextScope scope(driver_, context_);
    driver_.Check(driver_.cuEventRecord(start ? start_ : stop_, stream), "cuEventRecord");
  }

  double Elapsed() {
    ContextScope scope(driver_, context_);
    driver_.Check(driver_.cuEventSynchronize(stop_), "cuEventSynchronize");
    float milliseconds = 0;
    driver_.Check(driver_.cuEventElapsedTime(&milliseconds, start_, stop_), "cuEventElapsedTime");
    return milliseconds;
  }

 private:
  const Driver& driver_;
  int device_;
  CUcontext context_;
  CUevent start_ = nullptr;
  CUevent stop_ = nullptr;
};

// A callable: timer("start", stream), timer("stop", stream), timer("elapsed", 0) in ms. `stream` is a raw handle.
ffi::Function MakeTimer(int64_t device) {
  auto timer = std::make_shared<Timer>(static_cast<int>(device));
  return ffi::Function::FromTyped([timer](const ffi::String& what, int64_t stream) -> double {
    if (what == "elapsed") return timer->Elapsed();
    if (what != "start" && what != "stop") TVM_FFI_THROW(ValueError) << "a timer does start, stop and elapsed, not " << what;
    timer->Record(what == "start", reinterpret_cast<void*>(stream));
    return 0.0;
  });
}

TVM_FFI_STATIC_INIT_BLOCK() { tvm::ffi::reflection::GlobalDef().def("tilelang.runtime.make_timer", MakeTimer); }

}  // namespace

}  // namespace tilelang
