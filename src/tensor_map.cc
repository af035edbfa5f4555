// SPDX-License-Identifier: Apache-2.0
#include "tensor_map.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace tilelang {

namespace {

// CUtensorMapDataType, cuda.h.
int DataType(const std::string& dtype) {
  static const std::map<std::string, int> types = {
      {"uint8", 0},   {"int8", 0},    {"bool", 0},    {"uint16", 1},  {"int16", 1},    {"uint32", 2},   {"int32", 3},
      {"uint64", 4},  {"int64", 5},   {"float16", 6}, {"float32", 7}, {"float64", 8},  {"bfloat16", 9}, {"tfloat32", 11},
      {"float8_e4m3", 0}, {"float8_e4m3fn", 0}, {"float8_e4m3fnuz", 0}, {"float8_e5m2", 0}, {"float8_e5m2fnuz", 0},
      {"float8_e8m0fnu", 0}};
  auto it = types.find(dtype);
  if (it == types.end()) TVM_FFI_THROW(ValueError) << "no tensor map holds elements of type " << dtype;
  return it->second;
}

// CUtensorMapSwizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes.
int SwizzleCode(int64_t bytes) {
  switch (bytes) {
    case 0:
      return 0;
    case 32:
      return 1;
    case 64:
      return 2;
    case 128:
      return 3;
    default:
      TVM_FFI_THROW(ValueError) << "a tensor map swizzles 0, 32, 64 or 128 bytes, not " << bytes;
  }
  return 0;
}

// CUtensorMapL2promotion: 0 none, 1 64 bytes, 2 128 bytes, 3 256 bytes.
int PromotionCode(int64_t bytes) {
  switch (bytes) {
    case 0:
      return 0;
    case 64:
      return 1;
    case 128:
      return 2;
    case 256:
      return 3;
    default:
      TVM_FFI_THROW(ValueError) << "a tensor map promotes 0, 64, 128 or 256 bytes to L2, not " << bytes;
  }
  return 0;
}

std::vector<Expression> Expressions(const JsonArray& texts, int slot_count) {
  std::vector<Expression> made;
  for (const ffi::Any& text : texts) made.emplace_back(std::string(text.cast<ffi::String>()), slot_count);
  return made;
}

std::vector<uint32_t> Integers(const JsonArray& values) {
  std::vector<uint32_t> made;
  for (const ffi::Any& value : values) made.push_back(static_cast<uint32_t>(value.cast<int64_t>()));
  return made;
}

}  // namespace

TensorMapParam::TensorMapParam(const JsonObject& data, int slot_count)
    : data_type_(DataType(JsonText(data, "dtype"))),
      dims_(Expressions(JsonList(data, "dims"), slot_count)),
      strides_(Expressions(JsonList(data, "strides"), slot_count)),
      box_(Integers(JsonList(data, "box"))),
      element_strides_(Integers(JsonList(data, "element_strides"))),
      offset_(JsonText(data, "offset"), slot_count),
      swizzle_(SwizzleCode(JsonInt(data, "swizzle"))),
      l2_promotion_(PromotionCode(JsonInt(data, "l2_promotion"))),
      oob_nan_(JsonFlag(data, "oob_nan") ? 1 : 0) {
  size_t rank = dims_.size();
  if (rank < 1 || rank > kMaxTensorMapRank || strides_.size() != rank - 1 || box_.size() != rank ||
      element_strides_.size() != rank) {
    TVM_FFI_THROW(ValueError) << "a tensor map has 1 to 5 dimensions, one stride less, and a box of as many dimensions";
  }
}

bool TensorMapParam::Key::operator==(const Key& other) const {
  return address == other.address && std::equal(dims, dims + kMaxTensorMapRank, other.dims) &&
         std::equal(strides, strides + kMaxTensorMapRank, other.strides);
}

TensorMapParam::Key TensorMapParam::MakeKey(const Driver& driver, uint64_t address, ZeroBytes* zeros,
                                            const int64_t* slots) const {
  Key key;
  key.address = address + static_cast<uint64_t>(offset_.Eval(slots));
  bool empty = false;
  for (size_t i = 0; i < dims_.size(); ++i) {
    int64_t dim = dims_[i].Eval(slots);
    key.dims[i] = static_cast<uint64_t>(dim);
    empty = empty || dim <= 0;
  }
  for (size_t i = 0; i < strides_.size(); ++i) key.strides[i] = static_cast<uint64_t>(strides_[i].Eval(slots));
  if (empty) {
    key.address = zeros->Address(driver);
    std::fill_n(key.dims, dims_.size(), 1);
    std::fill_n(key.strides, strides_.size(), 16);
  }
  return key;
}

void TensorMapParam::Get(const Driver& driver, uint64_t address, ZeroBytes* zeros, const int64_t* slots,
                         const std::string& place, CUtensorMap* map) {
  Key key = MakeKey(driver, address, zeros, slots);
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (!(entry.key == key)) continue;
    *map = entry.map;
    return;
  }
  CheckRules(key, place);
  Entry entry{key, Encode(driver, key, place)};
  if (entries_.size() < kEntries) {
    entries_.push_back(entry);
  } else {
    entries_[next_] = entry;
    next_ = (next_ + 1) % kEntries;
  }
  *map = entry.map;
}

// The driver answers every broken rule with the same "invalid argument"; say which one it is.
void TensorMapParam::CheckRules(const Key& key, const std::string& place) const {
  if (key.address % 16 != 0) {
    std::ostringstream hex;
    hex << std::hex << key.address;
    TVM_FFI_THROW(ValueError) << place << "required data aligned to 16 bytes for the tensor memory accelerator, given 0x"
                              << hex.str() << "; pass a copy (.clone())";
  }
  for (size_t i = 0; i < strides_.size(); ++i) {
    if (key.strides[i] % 16 == 0 && key.strides[i] < (uint64_t{1} << 40)) continue;
    TVM_FFI_THROW(ValueError) << place << "required row strides that are multiples of 16 bytes and below 2^40 for the tensor memory "
                              << "accelerator, given " << key.strides[i] << " bytes";
  }
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (key.dims[i] <= (uint64_t{1} << 32)) continue;
    TVM_FFI_THROW(ValueError) << place << "required extents up to 2^32 for the tensor memory accelerator, given " << key.dims[i];
  }
}

CUtensorMap TensorMapParam::Encode(const Driver& driver, const Key& key, const std::string& place) const {
  CUtensorMap map;
  CUresult status = driver.cuTensorMapEncodeTiled(&map, data_type_, static_cast<uint32_t>(dims_.size()),
                                                  reinterpret_cast<void*>(key.address), key.dims, key.strides, box_.data(),
                                                  element_strides_.data(), 0, swizzle_, l2_promotion_, oob_nan_);
  if (status == kCudaSuccess) return map;
  std::ostringstream os;
  auto list = [&os](const char* label, const auto* values, size_t count) {
    os << ", " << label << " (";
    for (size_t i = 0; i < count; ++i) os << (i ? ", " : "") << values[i];
    os << ")";
  };
  list("extents", key.dims, dims_.size());
  list("strides in bytes", key.strides, strides_.size());
  list("box", box_.data(), box_.size());
  TVM_FFI_THROW(RuntimeError) << place << "the driver refuses its tensor map: " << driver.Name(status) << os.str() << ", swizzle "
                              << swizzle_;
  return map;
}

}  // namespace tilelang
