// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <sstream>

namespace tilelang {

// ---- JSON

ffi::Any JsonGet(const JsonObject& object, const char* key) {
  auto it = object.find(ffi::String(key));
  if (it == object.end()) TVM_FFI_THROW(ValueError) << "the launch plan lacks '" << key << "'";
  return (*it).second;
}

std::string JsonText(const JsonObject& object, const char* key) {
  return std::string(JsonGet(object, key).cast<ffi::String>());
}

int64_t JsonInt(const JsonObject& object, const char* key) { return JsonGet(object, key).cast<int64_t>(); }

bool JsonFlag(const JsonObject& object, const char* key) { return JsonGet(object, key).cast<bool>(); }

JsonArray JsonList(const JsonObject& object, const char* key) { return JsonGet(object, key).cast<JsonArray>(); }

namespace {

std::vector<Expression> Expressions(const JsonArray& texts, int slot_count) {
  std::vector<Expression> made;
  for (const ffi::Any& text : texts) made.emplace_back(std::string(text.cast<ffi::String>()), slot_count);
  return made;
}

ArgSpec ParseArg(const JsonObject& data, int slot_count) {
  ArgSpec arg;
  arg.name = JsonText(data, "name");
  arg.is_tensor = JsonText(data, "kind") == "tensor";
  if (!arg.is_tensor) {
    arg.scalar_name = JsonText(data, "dtype");
    arg.scalar = arg.scalar_name == "handle" ? DLDataType{kDLOpaqueHandle, 64, 1} : ffi::StringToDLDataType(arg.scalar_name);
    return arg;
  }
  TensorSpec& spec = arg.tensor;
  spec.dtype = JsonText(data, "dtype");
  for (const ffi::Any& name : JsonList(data, "carriers")) spec.carriers.push_back(ffi::StringToDLDataType(name.cast<ffi::String>()));
  spec.packing = static_cast<int>(JsonInt(data, "packing"));
  spec.shape = Expressions(JsonList(data, "shape"), slot_count);
  ffi::Any strides = JsonGet(data, "strides");
  spec.contiguous = strides == nullptr;
  if (!spec.contiguous) spec.strides = Expressions(strides.cast<JsonArray>(), slot_count);
  spec.align = JsonInt(data, "align");
  spec.optional = JsonFlag(data, "optional");
  return arg;
}

SlotSpec ParseSlot(const JsonObject& data) {
  SlotSpec slot;
  slot.name = JsonText(data, "name");
  std::string kind = JsonText(data, "kind");
  slot.kind = kind == "scalar" ? SlotSpec::Kind::kScalar : kind == "stride" ? SlotSpec::Kind::kStride : SlotSpec::Kind::kShape;
  slot.arg = static_cast<int>(JsonInt(data, "arg"));
  slot.dim = static_cast<int>(JsonInt(data, "dim"));
  slot.is_int32 = JsonText(data, "dtype") == "int32";
  return slot;
}

std::string DeviceText(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
      return "cpu";
    case kDLCUDA:
      return "cuda:" + std::to_string(device.device_id);
    default:
      return "device type " + std::to_string(static_cast<int>(device.device_type));
  }
}

// Strides may be left out for a contiguous tensor.
int64_t StrideOf(const DLTensor* tensor, int dim) {
  if (tensor->strides != nullptr) return tensor->strides[dim];
  int64_t stride = 1;
  for (int d = tensor->ndim - 1; d > dim; --d) stride *= tensor->shape[d];
  return stride;
}

bool SameType(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

std::string KindOf(const ffi::AnyView& arg) {
  switch (arg.type_index()) {
    case ffi::TypeIndex::kTVMFFINone:
      return "None";
    case ffi::TypeIndex::kTVMFFIInt:
      return "int";
    case ffi::TypeIndex::kTVMFFIBool:
      return "bool";
    case ffi::TypeIndex::kTVMFFIFloat:
      return "float";
    default:
      return arg.GetTypeKey();
  }
}

bool FitsInteger(int64_t value, DLDataType type) {
  if (type.bits >= 64) return type.code == kDLInt || value >= 0;
  if (type.code == kDLUInt) return value >= 0 && value < (int64_t{1} << type.bits);
  int64_t half = int64_t{1} << (type.bits - 1);
  return value >= -half && value < half;
}

}  // namespace

// ---- Signature

Signature::Signature(const JsonObject& plan) {
  JsonObject data = JsonGet(plan, "signature").cast<JsonObject>();
  name_ = JsonText(data, "name");
  device_type_ = JsonText(plan, "device_type") == "cpu" ? kDLCPU : kDLCUDA;
  for (const ffi::Any& slot : JsonList(data, "slots")) {
    slots_.push_back(ParseSlot(slot.cast<JsonObject>()));
    slot_names_.push_back(slots_.back().name);
  }
  if (slots_.size() > kMaxSlots) TVM_FFI_THROW(ValueError) << name_ << " has more than " << kMaxSlots << " symbols";
  for (const ffi::Any& arg : JsonList(data, "args")) args_.push_back(ParseArg(arg.cast<JsonObject>(), slot_count()));
  std::vector<bool> is_output(args_.size(), false);
  for (const ffi::Any& index : JsonList(data, "outputs")) {
    outputs_.push_back(static_cast<int>(index.cast<int64_t>()));
    is_output.at(outputs_.back()) = true;
  }
  for (size_t i = 0; i < args_.size(); ++i) {
    if (!is_output[i]) inputs_.push_back(static_cast<int>(i));
  }
  if (args_.size() > kMaxArgs) TVM_FFI_THROW(ValueError) << name_ << " has more than " << kMaxArgs << " arguments";
}

std::string Signature::Place(int index) const {
  return name_ + "() argument " + std::to_string(index) + " '" + args_[index].name + "': ";
}

std::string Signature::Describe() const {
  std::ostringstream os;
  os << name_ << "(";
  for (size_t i = 0; i < args_.size(); ++i) {
    const ArgSpec& arg = args_[i];
    os << (i ? ", " : "") << arg.name << ": ";
    if (!arg.is_tensor) {
      os << arg.scalar_name;
      continue;
    }
    os << "Tensor([";
    for (size_t d = 0; d < arg.tensor.shape.size(); ++d) os << (d ? ", " : "") << arg.tensor.shape[d].Render(slot_names_);
    os << "], " << arg.tensor.dtype << ")";
  }
  os << ")";
  return os.str();
}

void Signature::CheckCount(int count, bool inputs_only) const {
  size_t wanted = inputs_only ? inputs_.size() : args_.size();
  if (count == static_cast<int>(wanted)) return;
  if (!inputs_only) TVM_FFI_THROW(ValueError) << Describe() << " takes " << wanted << " arguments, given " << count;
  std::ostringstream os;
  for (size_t i = 0; i < inputs_.size(); ++i) os << (i ? ", " : "") << args_[inputs_[i]].name;
  os << "), given " << count << "; outputs [";
  for (size_t i = 0; i < outputs_.size(); ++i) os << (i ? ", " : "") << "'" << args_[outputs_[i]].name << "'";
  TVM_FFI_THROW(ValueError) << Describe() << " takes " << wanted << " inputs (" << os.str() << "] are allocated";
}

int Signature::Bind(const ffi::AnyView* args, int count, BoundArg* bound, int64_t* slots, std::vector<ffi::Tensor>* made) const {
  CheckCount(count, made != nullptr);
  int device_arg = -1;
  int device = 0;
  for (int i = 0; i < count; ++i) BindArg(made != nullptr ? inputs_[i] : i, args[i], bound, &device_arg, &device);
  BindSlots(bound, slots);
  for (int i = 0; i < count; ++i) {
    int index = made != nullptr ? inputs_[i] : i;
    if (args_[index].is_tensor && bound[index].tensor != nullptr) CheckExtents(index, bound[index].tensor, slots);
  }
  if (made != nullptr) AllocateOutputs(device, slots, bound, made);
  return device;
}

void Signature::BindArg(int index, const ffi::AnyView& arg, BoundArg* bound, int* device_arg, int* device) const {
  const ArgSpec& spec = args_[index];
  if (spec.is_tensor) {
    bound[index].tensor = BindTensor(index, arg, device_arg, device);
    return;
  }
  if (spec.scalar.code != kDLFloat && spec.scalar.code != kDLBfloat) {
    bound[index].integer = BindInteger(index, arg);
    return;
  }
  auto value = arg.try_cast<double>();
  if (!value || arg.type_index() == ffi::TypeIndex::kTVMFFIBool) {
    TVM_FFI_THROW(TypeError) << Place(index) << "required a number of type " << spec.scalar_name << ", given " << KindOf(arg);
  }
  bound[index].real = *value;
}

void Signature::AllocateOutputs(int device, const int64_t* slots, BoundArg* bound, std::vector<ffi::Tensor>* made) const {
  made->reserve(outputs_.size());
  for (int index : outputs_) {
    const TensorSpec& spec = args_[index].tensor;
    std::vector<int64_t> shape;
    for (const Expression& dim : spec.shape) shape.push_back(dim.Eval(slots));
    if (spec.packing > 1) shape.back() = (shape.back() + spec.packing - 1) / spec.packing;
    DLDevice where{static_cast<DLDeviceType>(device_type_), device};
    made->push_back(ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, ffi::ShapeView(shape.data(), shape.size()), spec.carriers[0], where));
    bound[index].tensor = made->back().GetDLTensorPtr();
  }
}

const DLTensor* Signature::BindTensor(int index, const ffi::AnyView& arg, int* device_arg, int* device) const {
  const TensorSpec& spec = args_[index].tensor;
  if (arg.type_index() == ffi::TypeIndex::kTVMFFINone) {
    if (spec.optional) return nullptr;
    TVM_FFI_THROW(TypeError) << Place(index) << "required a tensor, given None";
  }
  auto cast = arg.try_cast<DLTensor*>();
  if (!cast) TVM_FFI_THROW(TypeError) << Place(index) << "required a tensor of " << spec.dtype << ", given " << KindOf(arg);
  const DLTensor* tensor = *cast;
  bool carried = false;
  for (DLDataType carrier : spec.carriers) carried = carried || SameType(carrier, tensor->dtype);
  if (!carried) {
    TVM_FFI_THROW(TypeError) << Place(index) << "required dtype " << spec.dtype << ", given "
                             << ffi::DLDataTypeToString(tensor->dtype);
  }
  if (tensor->ndim != static_cast<int>(spec.shape.size())) {
    std::ostringstream shape;
    for (int d = 0; d < tensor->ndim; ++d) shape << (d ? ", " : "") << tensor->shape[d];
    TVM_FFI_THROW(ValueError) << Place(index) << "required rank " << spec.shape.size() << ", given " << tensor->ndim << ", shape ["
                              << shape.str() << "]";
  }
  if (static_cast<int>(tensor->device.device_type) != device_type_) {
    TVM_FFI_THROW(ValueError) << Place(index) << "required a tensor on " << (device_type_ == kDLCPU ? "cpu" : "cuda")
                              << ", given one on " << DeviceText(tensor->device);
  }
  if (*device_arg < 0) {
    *device_arg = index;
    *device = tensor->device.device_id;
  } else if (tensor->device.device_id != *device) {
    TVM_FFI_THROW(ValueError) << Place(index) << "required device " << DeviceText({tensor->device.device_type, *device})
                              << " as argument '" << args_[*device_arg].name << "', given " << DeviceText(tensor->device);
  }
  return tensor;
}

int64_t Signature::BindInteger(int index, const ffi::AnyView& arg) const {
  const ArgSpec& spec = args_[index];
  if (spec.scalar.code == kDLOpaqueHandle) {
    if (auto tensor = arg.try_cast<DLTensor*>()) {
      return reinterpret_cast<int64_t>(static_cast<char*>((*tensor)->data) + (*tensor)->byte_offset);
    }
    if (auto address = arg.try_cast<void*>()) return reinterpret_cast<int64_t>(*address);
  }
  bool integer = arg.type_index() == ffi::TypeIndex::kTVMFFIInt || arg.type_index() == ffi::TypeIndex::kTVMFFIBool;
  if (!integer) {
    TVM_FFI_THROW(TypeError) << Place(index) << "required a number of type " << spec.scalar_name << ", given " << KindOf(arg);
  }
  int64_t value = arg.cast<int64_t>();
  bool ranged = spec.scalar.code == kDLInt || spec.scalar.code == kDLUInt;
  if (ranged && !FitsInteger(value, spec.scalar)) {
    TVM_FFI_THROW(ValueError) << Place(index) << "required a value of " << spec.scalar_name << ", given " << value;
  }
  return value;
}

void Signature::BindSlots(const BoundArg* bound, int64_t* slots) const {
  for (size_t k = 0; k < slots_.size(); ++k) {
    const SlotSpec& slot = slots_[k];
    if (slot.kind == SlotSpec::Kind::kScalar) {
      slots[k] = bound[slot.arg].integer;
      continue;
    }
    const DLTensor* tensor = bound[slot.arg].tensor;
    const TensorSpec& spec = args_[slot.arg].tensor;
    if (tensor == nullptr) {
      TVM_FFI_THROW(ValueError) << name_ << "(): symbol " << slot.name << " is defined by argument '" << args_[slot.arg].name
                                << "', which is None";
    }
    bool is_shape = slot.kind == SlotSpec::Kind::kShape;
    int64_t given = is_shape ? tensor->shape[slot.dim] : StrideOf(tensor, slot.dim);
    if (is_shape && slot.dim == tensor->ndim - 1) given *= spec.packing;
    slots[k] = Solve((is_shape ? spec.shape : spec.strides)[slot.dim], given, static_cast<int>(k), slots);
    if (slot.is_int32 && (slots[k] < INT32_MIN || slots[k] > INT32_MAX)) {
      TVM_FFI_THROW(ValueError) << Place(slot.arg) << slot.name << " = " << slots[k] << " does not fit int32; declare the symbol "
                                << "T.dynamic(\"" << slot.name << "\", \"int64\")";
    }
  }
}

int64_t Signature::Solve(const Expression& expression, int64_t value, int number, int64_t* slots) const {
  if (expression.IsSlot(number)) return value;
  // The expression is linear in this slot, so two points give it.
  slots[number] = 0;
  int64_t base = expression.Eval(slots);
  slots[number] = 1;
  int64_t slope = expression.Eval(slots) - base;
  return slope == 0 ? 0 : (value - base) / slope;
}

std::string Signature::Shown(const Expression& expression, int64_t value) const {
  if (expression.is_constant()) return std::to_string(value);
  std::ostringstream os;
  os << expression.Render(slot_names_) << " = " << value << " (";
  bool first = true;
  for (int number : expression.Slots()) {
    const SlotSpec& slot = slots_[number];
    os << (first ? "" : ", ") << slot.name << " from argument " << slot.arg << " '" << args_[slot.arg].name << "'";
    first = false;
  }
  os << ")";
  return os.str();
}

void Signature::CheckExtents(int index, const DLTensor* tensor, const int64_t* slots) const {
  const TensorSpec& spec = args_[index].tensor;
  bool empty = false;
  for (int d = 0; d < tensor->ndim; ++d) {
    int64_t required = spec.shape[d].Eval(slots);
    int64_t given = tensor->shape[d] * (d == tensor->ndim - 1 ? spec.packing : 1);
    if (given != required) {
      TVM_FFI_THROW(ValueError) << Place(index) << "required shape[" << d << "] == " << Shown(spec.shape[d], required)
                                << ", given " << given;
    }
    empty = empty || given == 0;
  }
  if (empty) return;
  CheckStrides(index, tensor, slots);
  auto address = reinterpret_cast<uintptr_t>(tensor->data) + tensor->byte_offset;
  if (spec.align > 1 && address % spec.align != 0) {
    std::ostringstream hex;
    hex << std::hex << address;
    TVM_FFI_THROW(ValueError) << Place(index) << "required data aligned to " << spec.align << " bytes, given 0x" << hex.str()
                              << "; pass a copy (.clone())";
  }
}

void Signature::CheckStrides(int index, const DLTensor* tensor, const int64_t* slots) const {
  const TensorSpec& spec = args_[index].tensor;
  if (spec.contiguous && tensor->strides == nullptr) return;
  int64_t running = 1;
  for (int d = tensor->ndim - 1; d >= 0; --d) {
    int64_t extent = tensor->shape[d];
    int64_t given = StrideOf(tensor, d);
    int64_t required = spec.contiguous ? running : spec.strides[d].Eval(slots);
    if (extent != 1 && given != required) {
      std::string shown = spec.contiguous ? std::to_string(running) +
                                                " (contiguous; pass .contiguous() or declare it T.StridedTensor)"
                                          : Shown(spec.strides[d], required);
      TVM_FFI_THROW(ValueError) << Place(index) << "required stride[" << d << "] == " << shown << ", given " << given;
    }
    running *= extent;
  }
}

}  // namespace tilelang
