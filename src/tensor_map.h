// SPDX-License-Identifier: Apache-2.0
// Tensor maps of a kernel: encoded from the launch plan, kept for the tensors seen last.
#ifndef TILELANG_TENSOR_MAP_H_
#define TILELANG_TENSOR_MAP_H_

#include <mutex>
#include <string>
#include <vector>

#include "arguments.h"
#include "driver.h"

namespace tilelang {

constexpr int kMaxTensorMapRank = 5;  // cuda.h, cuTensorMapEncodeTiled

class TensorMapParam {
 public:
  TensorMapParam(const JsonObject& data, int slot_count);

  // Writes the map for a tensor at `address`; `place` names it in errors. Encodes where the last tensors were others.
  // A tensor without elements gets a map of one zero element of `zeros`, since hardware knows no empty tensor.
  void Get(const Driver& driver, uint64_t address, ZeroBytes* zeros, const int64_t* slots, const std::string& place,
           CUtensorMap* map);

 private:
  struct Key {
    uint64_t address = 0;
    uint64_t dims[kMaxTensorMapRank] = {};
    uint64_t strides[kMaxTensorMapRank] = {};  // bytes, from the second dimension on
    bool operator==(const Key& other) const;
  };
  struct Entry {
    Key key;
    CUtensorMap map;
  };
  static constexpr size_t kEntries = 8;

  Key MakeKey(const Driver& driver, uint64_t address, ZeroBytes* zeros, const int64_t* slots) const;
  void CheckRules(const Key& key, const std::string& place) const;
  CUtensorMap Encode(const Driver& driver, const Key& key, const std::string& place) const;

  int data_type_ = 0;
  std::vector<Expression> dims_;     // elements, fastest first
  std::vector<Expression> strides_;  // bytes
  std::vector<uint32_t> box_;
  std::vector<uint32_t> element_strides_;
  Expression offset_;  // bytes from the tensor's start
  int swizzle_ = 0;
  int l2_promotion_ = 0;
  int oob_nan_ = 0;

  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

}  // namespace tilelang

#endif  // TILELANG_TENSOR_MAP_H_
