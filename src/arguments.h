// SPDX-License-Identifier: Apache-2.0
// What a kernel takes, the checks of call arguments, and the values of shape symbols.
//
// The rules and their wording are those of tilelang/runtime/arguments.py; testing/runtime holds the two together.
#ifndef TILELANG_ARGUMENTS_H_
#define TILELANG_ARGUMENTS_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <string>
#include <vector>

#include "expression.h"

namespace tilelang {

namespace ffi = tvm::ffi;
using JsonObject = ffi::Map<ffi::Any, ffi::Any>;
using JsonArray = ffi::Array<ffi::Any>;

constexpr int kMaxSlots = 64;
constexpr int kMaxArgs = 64;

// Reading of JSON data; throws ValueError naming the key.
ffi::Any JsonGet(const JsonObject& object, const char* key);
std::string JsonText(const JsonObject& object, const char* key);
int64_t JsonInt(const JsonObject& object, const char* key);
bool JsonFlag(const JsonObject& object, const char* key);
JsonArray JsonList(const JsonObject& object, const char* key);

struct TensorSpec {
  std::string dtype;
  std::vector<DLDataType> carriers;
  int packing = 1;  // elements in one element of the carrying tensor
  std::vector<Expression> shape;
  std::vector<Expression> strides;
  bool contiguous = true;
  int64_t align = 1;
  bool optional = false;
};

struct ArgSpec {
  std::string name;
  bool is_tensor = false;
  TensorSpec tensor;
  DLDataType scalar{};  // element type of a scalar; kDLOpaqueHandle for an address
  std::string scalar_name;
};

struct SlotSpec {
  enum class Kind { kShape, kStride, kScalar };
  std::string name;
  Kind kind = Kind::kShape;
  int arg = 0;
  int dim = 0;
  bool is_int32 = true;
};

// One bound call argument: a tensor (null where None was given) or the bits of a scalar.
union BoundArg {
  const DLTensor* tensor;
  int64_t integer;
  double real;
};

class Signature {
 public:
  explicit Signature(const JsonObject& plan);

  // Checks the arguments, fills `bound` and the slot values; returns the device number of the tensors (0 without any).
  // With `made` null, `args` are all arguments; otherwise they are the inputs, and outputs are allocated into `made`
  // with the caller's allocator.
  int Bind(const ffi::AnyView* args, int count, BoundArg* bound, int64_t* slots, std::vector<ffi::Tensor>* made) const;

  const std::string& name() const { return name_; }
  const std::vector<ArgSpec>& args() const { return args_; }
  int slot_count() const { return static_cast<int>(slots_.size()); }
  // `main() argument 0 'A': `
  std::string Place(int index) const;

 private:
  void CheckCount(int count, bool inputs_only) const;
  void BindArg(int index, const ffi::AnyView& arg, BoundArg* bound, int* device_arg, int* device) const;
  void AllocateOutputs(int device, const int64_t* slots, BoundArg* bound, std::vector<ffi::Tensor>* made) const;
  const DLTensor* BindTensor(int index, const ffi::AnyView& arg, int* device_arg, int* device) const;
  int64_t BindInteger(int index, const ffi::AnyView& arg) const;
  void BindSlots(const BoundArg* bound, int64_t* slots) const;
  int64_t Solve(const Expression& expression, int64_t value, int number, int64_t* slots) const;
  void CheckExtents(int index, const DLTensor* tensor, const int64_t* slots) const;
  void CheckStrides(int index, const DLTensor* tensor, const int64_t* slots) const;
  std::string Shown(const Expression& expression, int64_t value) const;
  std::string Describe() const;

  std::string name_;
  int device_type_ = 0;
  std::vector<ArgSpec> args_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  std::vector<SlotSpec> slots_;
  std::vector<std::string> slot_names_;
};

}  // namespace tilelang

#endif  // TILELANG_ARGUMENTS_H_
