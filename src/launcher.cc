// SPDX-License-Identifier: Apache-2.0
// Launches compiled kernels: a cubin and a launch plan (tilelang/runtime/plan.py) become one callable.
//
// Everything that can be settled once is settled when the callable is made; a call checks its arguments, reads shape
// symbols, fills the parameter buffers and launches on the caller's current stream. Nothing here synchronises, so calls can
// be captured into CUDA graphs.
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "arguments.h"
#include "driver.h"
#include "tensor_map.h"

namespace tilelang {

namespace {

constexpr int kMaxDevices = 64;
constexpr int kMaxParams = 128;
constexpr size_t kParamBytes = 32764;        // CUDA C++ guide, kernel parameter limit since CUDA 12.1
constexpr int64_t kDefaultSharedBytes = 48 * 1024;  // above it dynamic shared memory must be asked for
constexpr int64_t kMaxGrid[3] = {2147483647, 65535, 65535};

struct Param {
  enum class Kind { kPointer, kValue, kScalar, kTensorMap, kWorkspace, kTileQueue };
  Kind kind = Kind::kPointer;
  int index = 0;             // argument or workspace
  bool from_workspace = false;  // tensor map over a workspace
  DLDataType dtype{};
  Expression value;
  std::unique_ptr<TensorMapParam> tensor_map;
  std::string place;  // names the argument in errors
  size_t offset = 0;  // in the parameter buffer
};

struct KernelPlan {
  std::string entry;
  Expression grid[3];
  Expression block[3];
  Expression shared_bytes;
  unsigned cluster[3] = {1, 1, 1};
  bool cooperative = false;
  bool programmatic = false;
  std::vector<Param> params;
  size_t param_bytes = 0;
};

// What a kernel is on one device.
struct LoadedKernel {
  CUfunction function = nullptr;
  std::atomic<int64_t> shared_limit{kDefaultSharedBytes};
};

// Counters of tiles for persistent blocks. A launch leaves its counter at 0, so launches that follow each other use the
// same one; those that may run together must not: each stream has its own, and under capture each stream of each graph.
class TileQueues {
 public:
  uint64_t Get(const Driver& driver, CUstream stream) {
    unsigned long long stream_id = reinterpret_cast<uintptr_t>(stream), capture_id = 0;
    int status = 0;
    driver.Check(driver.cuStreamGetCaptureInfo(stream, &status, &capture_id, nullptr, nullptr, nullptr),
                 "cuStreamGetCaptureInfo");
    if (status != kCaptureActive) {
      // Handles are used again, and those of the default streams stand for several.
      capture_id = 0;
      driver.Check(driver.cuStreamGetId(stream, &stream_id), "cuStreamGetId");
    }
    std::lock_guard<std::mutex> lock(mutex_);
    std::pair<uint64_t, uint64_t> user{stream_id, capture_id};
    auto found = used_.find(user);
    if (found != used_.end()) return found->second;
    if (used_.size() % kChunk == 0) base_ = Zeros(driver);
    uint64_t address = base_ + used_.size() % kChunk * kApart;
    used_.emplace(user, address);
    return address;
  }

  void Free(const Driver& driver) {
    for (CUdeviceptr chunk : chunks_) driver.cuMemFree(chunk);
  }

 private:
  static constexpr size_t kChunk = 512, kApart = 32;  // a sector each

  // Neither the allocation nor the clearing may become part of a graph that is being captured.
  uint64_t Zeros(const Driver& driver) {
    int mode = kCaptureRelaxed;
    driver.Check(driver.cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    CUdeviceptr chunk = 0;
    CUstream own = nullptr;
    CUresult result = driver.cuMemAlloc(&chunk, kChunk * kApart);
    if (result == kCudaSuccess) result = driver.cuStreamCreate(&own, kStreamNonBlocking);
    if (result == kCudaSuccess) result = driver.cuMemsetD8Async(chunk, 0, kChunk * kApart, own);
    if (result == kCudaSuccess) result = driver.cuStreamSynchronize(own);
    if (own != nullptr) driver.cuStreamDestroy(own);
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    if (chunk != 0) chunks_.push_back(chunk);
    driver.Check(result, "counters of tiles");
    return chunk;
  }

  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> used_;
  std::vector<CUdeviceptr> chunks_;
  uint64_t base_ = 0;
};

struct LoadedDevice {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  ZeroBytes zeros;
  TileQueues queues;
  std::vector<std::unique_ptr<LoadedKernel>> kernels;
};

size_t SizeOf(DLDataType dtype) { return (static_cast<size_t>(dtype.bits) * dtype.lanes + 7) / 8; }

uint16_t HalfBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds beyond the largest half
  if (magnitude < 0x38800000u) {                                               // subnormal half: units of 2^-24
    float scaled;
    std::memcpy(&scaled, &magnitude, 4);
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(__builtin_nearbyintf(scaled * 16777216.0f)));
  }
  uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

uint16_t BrainBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void StoreReal(DLDataType dtype, double value, char* to) {
  if (dtype.bits == 64) {
    std::memcpy(to, &value, 8);
    return;
  }
  float single = static_cast<float>(value);
  if (dtype.bits == 32) {
    std::memcpy(to, &single, 4);
    return;
  }
  uint16_t bits = dtype.code == kDLBfloat ? BrainBits(single) : HalfBits(single);
  std::memcpy(to, &bits, 2);
}

Param ParseParam(const JsonObject& data, const Signature& signature) {
  Param param;
  std::string kind = JsonText(data, "kind");
  param.dtype = DLDataType{kDLUInt, 64, 1};
  if (kind == "pointer") {
    param.index = static_cast<int>(JsonInt(data, "arg"));
  } else if (kind == "value") {
    param.kind = Param::Kind::kValue;
    param.dtype = ffi::StringToDLDataType(JsonText(data, "dtype"));
    param.value = Expression(JsonText(data, "value"), signature.slot_count());
  } else if (kind == "scalar") {
    param.kind = Param::Kind::kScalar;
    param.index = static_cast<int>(JsonInt(data, "arg"));
    const ArgSpec& arg = signature.args().at(param.index);
    param.dtype = arg.scalar;
  } else if (kind == "tensor_map") {
    param.kind = Param::Kind::kTensorMap;
    param.index = static_cast<int>(JsonInt(data, "arg"));
    param.from_workspace = JsonFlag(data, "workspace");
    param.place = param.from_workspace ? "workspace: " : signature.Place(param.index);
    param.tensor_map = std::make_unique<TensorMapParam>(data, signature.slot_count());
  } else if (kind == "workspace") {
    param.kind = Param::Kind::kWorkspace;
    param.index = static_cast<int>(JsonInt(data, "index"));
  } else if (kind == "tile_queue") {
    param.kind = Param::Kind::kTileQueue;
  } else {
    TVM_FFI_THROW(ValueError) << "unknown kernel parameter kind '" << kind << "'";
  }
  return param;
}

KernelPlan ParseKernel(const JsonObject& data, const Signature& signature) {
  KernelPlan plan;
  plan.entry = JsonText(data, "entry");
  int slots = signature.slot_count();
  JsonArray grid = JsonList(data, "grid");
  JsonArray block = JsonList(data, "block");
  JsonArray cluster = JsonList(data, "cluster");
  for (int i = 0; i < 3; ++i) {
    plan.grid[i] = Expression(std::string(grid[i].cast<ffi::String>()), slots);
    plan.block[i] = Expression(std::string(block[i].cast<ffi::String>()), slots);
    plan.cluster[i] = static_cast<unsigned>(cluster[i].cast<int64_t>());
  }
  plan.shared_bytes = Expression(JsonText(data, "shared_bytes"), slots);
  plan.cooperative = JsonFlag(data, "cooperative");
  plan.programmatic = JsonFlag(data, "programmatic");
  for (const ffi::Any& item : JsonList(data, "params")) {
    Param param = ParseParam(item.cast<JsonObject>(), signature);
    bool map = param.kind == Param::Kind::kTensorMap;
    size_t size = map ? sizeof(CUtensorMap) : SizeOf(param.dtype);
    size_t align = map ? alignof(CUtensorMap) : size;
    param.offset = (plan.param_bytes + align - 1) / align * align;
    plan.param_bytes = param.offset + size;
    plan.params.push_back(std::move(param));
  }
  if (plan.param_bytes > kParamBytes || plan.params.size() > kMaxParams) {
    TVM_FFI_THROW(ValueError) << plan.entry << " has " << plan.params.size() << " parameters of " << plan.param_bytes
                              << " bytes; a kernel takes " << kMaxParams << " of " << kParamBytes << " bytes";
  }
  return plan;
}

class Launcher {
 public:
  Launcher(ffi::Bytes cubin, const JsonObject& plan) : cubin_(std::move(cubin)), signature_(plan) {
    for (const ffi::Any& item : JsonList(plan, "kernels")) {
      kernels_.push_back(ParseKernel(item.cast<JsonObject>(), signature_));
    }
    for (const ffi::Any& item : JsonList(plan, "workspaces")) {
      workspaces_.emplace_back(std::string(item.cast<ffi::String>()), signature_.slot_count());
    }
  }

  ~Launcher() {
    // Errors are of no use here: at exit the driver may be gone already.
    for (auto& slot : devices_) {
      LoadedDevice* device = slot.load();
      if (device == nullptr) continue;
      const Driver& driver = Driver::Get();
      CUcontext popped = nullptr;
      if (driver.cuCtxPushCurrent(device->context) == kCudaSuccess) {
        device->queues.Free(driver);
        driver.cuModuleUnload(device->module);
        driver.cuCtxPopCurrent(&popped);
      }
      delete device;
    }
  }

  // `args` are all arguments, or the inputs where `made` receives the outputs.
  void Call(const ffi::AnyView* args, int count, std::vector<ffi::Tensor>* made) {
    BoundArg bound[kMaxArgs];
    int64_t slots[kMaxSlots];
    int device_index = signature_.Bind(args, count, bound, slots, made);
    const Driver& driver = Driver::Get();
    LoadedDevice* device = Load(driver, device_index);
    ContextScope scope(driver, device->context);
    CUstream stream = TVMFFIEnvGetStream(kDLCUDA, device_index);
    std::vector<ffi::Tensor> workspaces = AllocateWorkspaces(slots, device_index);
    for (size_t k = 0; k < kernels_.size(); ++k) Launch(driver, device, k, bound, slots, workspaces, stream);
  }


 private:
  LoadedDevice* Load(const Driver& driver, int index) {
    if (index < 0 || index >= kMaxDevices) TVM_FFI_THROW(ValueError) << "no device " << index;
    if (LoadedDevice* ready = devices_[index].load(std::memory_order_acquire)) return ready;
    std::lock_guard<std::mutex> lock(load_mutex_);
    if (LoadedDevice* ready = devices_[index].load(std::memory_order_acquire)) return ready;
    auto device = std::make_unique<LoadedDevice>();
    device->context = PrimaryContext(driver, index);
    ContextScope scope(driver, device->context);
    driver.Check(driver.cuModuleLoadData(&device->module, cubin_.data()), "loading the kernel (cuModuleLoadData)");
    for (const KernelPlan& plan : kernels_) {
      auto kernel = std::make_unique<LoadedKernel>();
      driver.Check(driver.cuModuleGetFunction(&kernel->function, device->module, plan.entry.c_str()), plan.entry.c_str());
      if (plan.cluster[0] * plan.cluster[1] * plan.cluster[2] > 8) {  // the portable limit, CUDA C++ guide
        driver.Check(driver.cuFuncSetAttribute(kernel->function, kNonPortableClusterSize, 1), "allowing the cluster size");
      }
      device->kernels.push_back(std::move(kernel));
    }
    LoadedDevice* ready = device.release();
    devices_[index].store(ready, std::memory_order_release);
    return ready;
  }

  std::vector<ffi::Tensor> AllocateWorkspaces(const int64_t* slots, int device) const {
    std::vector<ffi::Tensor> made;
    for (const Expression& bytes : workspaces_) {
      int64_t size = std::max<int64_t>(bytes.Eval(slots), 1);
      // The caller's own allocator: ordered with the stream, and safe under graph capture.
      made.push_back(ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, ffi::ShapeView(&size, 1), DLDataType{kDLUInt, 8, 1},
                                               DLDevice{kDLCUDA, device}));
    }
    return made;
  }

  void FillParams(const Driver& driver, LoadedDevice* device, KernelPlan& plan, const BoundArg* bound, const int64_t* slots,
                  const std::vector<ffi::Tensor>& workspaces, CUstream stream, char* buffer, void** pointers) {
    size_t n = 0;
    for (Param& param : plan.params) {
      char* to = buffer + param.offset;
      pointers[n++] = to;
      switch (param.kind) {
        case Param::Kind::kPointer:
        case Param::Kind::kWorkspace: {
          uint64_t address = Address(param.kind == Param::Kind::kWorkspace, param.index, bound, workspaces);
          std::memcpy(to, &address, 8);
          break;
        }
        case Param::Kind::kValue: {
          int64_t value = param.value.Eval(slots);
          CheckRange(plan, param, value);
          std::memcpy(to, &value, SizeOf(param.dtype));  // little endian
          break;
        }
        case Param::Kind::kScalar: {
          bool real = param.dtype.code == kDLFloat || param.dtype.code == kDLBfloat;
          if (real) {
            StoreReal(param.dtype, bound[param.index].real, to);
          } else {
            std::memcpy(to, &bound[param.index].integer, SizeOf(param.dtype));
          }
          break;
        }
        case Param::Kind::kTileQueue: {
          uint64_t address = device->queues.Get(driver, stream);
          std::memcpy(to, &address, 8);
          break;
        }
        case Param::Kind::kTensorMap: {
          uint64_t address = Address(param.from_workspace, param.index, bound, workspaces);
          param.tensor_map->Get(driver, address, &device->zeros, slots, param.place, reinterpret_cast<CUtensorMap*>(to));
          break;
        }
      }
    }
  }

  static uint64_t Address(bool from_workspace, int index, const BoundArg* bound, const std::vector<ffi::Tensor>& workspaces) {
    if (from_workspace) return reinterpret_cast<uint64_t>(workspaces.at(index).data_ptr());
    const DLTensor* tensor = bound[index].tensor;
    return tensor == nullptr ? 0 : reinterpret_cast<uint64_t>(tensor->data) + tensor->byte_offset;
  }

  void CheckRange(const KernelPlan& plan, const Param& param, int64_t value) const {
    if (param.dtype.bits < 64 && param.dtype.code == kDLInt) {
      int64_t half = int64_t{1} << (param.dtype.bits - 1);
      if (value < -half || value >= half) {
        TVM_FFI_THROW(ValueError) << signature_.name() << "(): the kernel needs the value " << value << " as int"
                                  << static_cast<int>(param.dtype.bits) << "; declare the dimensions it depends on as int64";
      }
    }
  }

  void Launch(const Driver& driver, LoadedDevice* device, size_t k, const BoundArg* bound, const int64_t* slots,
              const std::vector<ffi::Tensor>& workspaces, CUstream stream) {
    KernelPlan& plan = kernels_[k];
    LoadedKernel& kernel = *device->kernels[k];
    CUlaunchConfig config{};
    for (int i = 0; i < 3; ++i) {
      int64_t extent = plan.grid[i].Eval(slots);
      if (extent <= 0) return;  // an empty grid does nothing
      if (extent > kMaxGrid[i]) {
        TVM_FFI_THROW(ValueError) << signature_.name() << "(): the grid has " << extent << " blocks along " << "xyz"[i]
                                  << ", the device takes " << kMaxGrid[i];
      }
      config.grid[i] = static_cast<unsigned>(extent);
      config.block[i] = static_cast<unsigned>(plan.block[i].Eval(slots));
    }
    CUlaunchAttribute attributes[3];
    config.attributes = attributes;
    config.attribute_count = Attributes(plan, attributes);
    config.stream = stream;
    int64_t shared = plan.shared_bytes.Eval(slots);
    config.shared_bytes = static_cast<unsigned>(shared);
    if (shared > kernel.shared_limit.load(std::memory_order_relaxed)) RaiseSharedLimit(driver, plan, &kernel, shared);

    void* pointers[kMaxParams];
    // Small parameter blocks, that is all but a few kernels, stay on the stack.
    alignas(alignof(CUtensorMap)) char small[4096];
    std::unique_ptr<char[]> large;
    char* buffer = small;
    if (plan.param_bytes > sizeof(small)) {
      large.reset(new char[plan.param_bytes + alignof(CUtensorMap)]);
      auto address = reinterpret_cast<uintptr_t>(large.get());
      buffer = large.get() + (alignof(CUtensorMap) - address % alignof(CUtensorMap)) % alignof(CUtensorMap);
    }
    FillParams(driver, device, plan, bound, slots, workspaces, stream, buffer, pointers);
    CUresult status = driver.cuLaunchKernelEx(&config, kernel.function, pointers, nullptr);
    if (status == kCudaSuccess) return;
    TVM_FFI_THROW(RuntimeError) << "launching " << plan.entry << " failed: " << driver.Name(status) << " (" << status
                                << "): " << driver.Text(status) << "; grid (" << config.grid[0] << ", " << config.grid[1] << ", "
                                << config.grid[2] << "), block (" << config.block[0] << ", " << config.block[1] << ", "
                                << config.block[2] << "), shared memory " << shared << " bytes";
  }

  static unsigned Attributes(const KernelPlan& plan, CUlaunchAttribute* attributes) {
    unsigned count = 0;
    auto add = [&](unsigned id) -> CUlaunchAttribute& {
      CUlaunchAttribute& attribute = attributes[count++];
      std::memset(&attribute, 0, sizeof(attribute));
      attribute.id = id;
      return attribute;
    };
    if (plan.cluster[0] * plan.cluster[1] * plan.cluster[2] > 1) {
      CUlaunchAttribute& attribute = add(kLaunchClusterDimension);
      attribute.value.cluster = {plan.cluster[0], plan.cluster[1], plan.cluster[2]};
    }
    if (plan.cooperative) add(kLaunchCooperative).value.flag = 1;
    if (plan.programmatic) add(kLaunchProgrammatic).value.flag = 1;
    return count;
  }

  void RaiseSharedLimit(const Driver& driver, const KernelPlan& plan, LoadedKernel* kernel, int64_t bytes) const {
    CUresult status = driver.cuFuncSetAttribute(kernel->function, kMaxDynamicSharedSizeBytes, static_cast<int>(bytes));
    if (status != kCudaSuccess) {
      TVM_FFI_THROW(RuntimeError) << plan.entry << " needs " << bytes << " bytes of shared memory, which the device refuses: "
                                  << driver.Name(status);
    }
    kernel->shared_limit.store(bytes, std::memory_order_relaxed);
  }

  ffi::Bytes cubin_;
  Signature signature_;
  std::vector<KernelPlan> kernels_;
  std::vector<Expression> workspaces_;
  std::mutex load_mutex_;
  std::array<std::atomic<LoadedDevice*>, kMaxDevices> devices_{};
};

// Makes the callables of a cubin and its launch plan (JSON text): the first takes all arguments, the second the inputs and
// returns the outputs: a tensor, or an array of several.
ffi::Array<ffi::Function> MakeKernel(ffi::Bytes cubin, ffi::String plan) {
  ffi::String error;
  ffi::Any parsed = ffi::json::Parse(plan, &error);
  if (!error.empty()) TVM_FFI_THROW(ValueError) << "the launch plan is no JSON: " << error;
  auto launcher = std::make_shared<Launcher>(std::move(cubin), parsed.cast<JsonObject>());
  auto with_all = ffi::Function::FromPacked(
      [launcher](const ffi::AnyView* args, int32_t count, ffi::Any* result) { launcher->Call(args, count, nullptr); });
  auto with_inputs = ffi::Function::FromPacked([launcher](const ffi::AnyView* args, int32_t count, ffi::Any* result) {
    std::vector<ffi::Tensor> made;
    launcher->Call(args, count, &made);
    if (made.size() == 1) {
      *result = std::move(made[0]);
    } else {
      *result = ffi::Array<ffi::Tensor>(made.begin(), made.end());
    }
  });
  return {with_all, with_inputs};
}

int64_t EvaluateExpression(ffi::String text, ffi::Array<int64_t> values) {
  std::vector<int64_t> slots(values.begin(), values.end());
  return Expression(std::string(text), static_cast<int>(slots.size())).Eval(slots.data());
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tilelang.runtime.make_kernel", MakeKernel)
      .def("tilelang.runtime.evaluate", EvaluateExpression);
}

}  // namespace

}  // namespace tilelang
