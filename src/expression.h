// SPDX-License-Identifier: Apache-2.0
// Integer expressions over launch-time values, as postfix text (tilelang/runtime/expression.py says what it holds).
#ifndef TILELANG_EXPRESSION_H_
#define TILELANG_EXPRESSION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tilelang {

class Expression {
 public:
  Expression() = default;
  // Throws ValueError for malformed text or a slot number that is not below `slot_count`.
  Expression(const std::string& text, int slot_count);

  int64_t Eval(const int64_t* slots) const {
    switch (form_) {
      case Form::kConstant:
        return constant_;
      case Form::kSlot:
        return slots[constant_];
      default:
        return Run(slots);
    }
  }
  bool is_constant() const { return form_ == Form::kConstant; }
  // True where this is slot `number` and nothing else.
  bool IsSlot(int64_t number) const { return form_ == Form::kSlot && constant_ == number; }
  // For a reader: `(M + 127) // 128`, and the slots it reads in ascending order.
  std::string Render(const std::vector<std::string>& names) const;
  std::vector<int> Slots() const;

 private:
  enum class Form { kConstant, kSlot, kProgram };
  struct Step {
    int op;  // index into the operation table, or kPush / kLoad
    int64_t value;
  };
  int64_t Run(const int64_t* slots) const;

  Form form_ = Form::kConstant;
  int64_t constant_ = 0;
  std::vector<Step> steps_;
};

}  // namespace tilelang

#endif  // TILELANG_EXPRESSION_H_
