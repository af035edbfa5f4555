// SPDX-License-Identifier: Apache-2.0
#include "expression.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

namespace tilelang {

namespace {

constexpr int kPush = -1;
constexpr int kLoad = -2;
constexpr int kMaxDepth = 32;

int64_t FloorDiv(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t NonZero(int64_t b) {
  if (b == 0) TVM_FFI_THROW(ValueError) << "division by zero in a launch expression";
  return b;
}

struct Operation {
  const char* name;
  int count;
  int64_t (*run)(const int64_t*);
  const char* symbol;  // infix form, or nullptr for name(a, b)
};

const Operation kOperations[] = {
    {"add", 2, [](const int64_t* x) { return x[0] + x[1]; }, "+"},
    {"sub", 2, [](const int64_t* x) { return x[0] - x[1]; }, "-"},
    {"mul", 2, [](const int64_t* x) { return x[0] * x[1]; }, "*"},
    {"floordiv", 2, [](const int64_t* x) { return FloorDiv(x[0], NonZero(x[1])); }, "//"},
    {"floormod", 2, [](const int64_t* x) { return x[0] - x[1] * FloorDiv(x[0], NonZero(x[1])); }, "%"},
    {"truncdiv", 2, [](const int64_t* x) { return x[0] / NonZero(x[1]); }, nullptr},
    {"truncmod", 2, [](const int64_t* x) { return x[0] % NonZero(x[1]); }, nullptr},
    {"min", 2, [](const int64_t* x) { return std::min(x[0], x[1]); }, nullptr},
    {"max", 2, [](const int64_t* x) { return std::max(x[0], x[1]); }, nullptr},
    {"shl", 2, [](const int64_t* x) { return static_cast<int64_t>(static_cast<uint64_t>(x[0]) << x[1]); }, "<<"},
    {"shr", 2, [](const int64_t* x) { return x[0] >> x[1]; }, ">>"},
    {"band", 2, [](const int64_t* x) { return x[0] & x[1]; }, "&"},
    {"bor", 2, [](const int64_t* x) { return x[0] | x[1]; }, "|"},
    {"bxor", 2, [](const int64_t* x) { return x[0] ^ x[1]; }, "^"},
    {"lt", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] < x[1]); }, "<"},
    {"le", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] <= x[1]); }, "<="},
    {"eq", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] == x[1]); }, "=="},
    {"ne", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] != x[1]); }, "!="},
    {"and", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] && x[1]); }, "and"},
    {"or", 2, [](const int64_t* x) { return static_cast<int64_t>(x[0] || x[1]); }, "or"},
    {"not", 1, [](const int64_t* x) { return static_cast<int64_t>(!x[0]); }, nullptr},
    {"select", 3, [](const int64_t* x) { return x[0] ? x[1] : x[2]; }, nullptr},
};

int FindOperation(const std::string& name) {
  for (size_t i = 0; i < std::size(kOperations); ++i) {
    if (name == kOperations[i].name) return static_cast<int>(i);
  }
  return -3;
}

int64_t ParseInteger(const std::string& token, const std::string& text) {
  size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(token, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != token.size()) TVM_FFI_THROW(ValueError) << "malformed expression '" << text << "'";
  return value;
}

}  // namespace

Expression::Expression(const std::string& text, int slot_count) {
  std::istringstream stream(text);
  std::string token;
  int depth = 0;
  int deepest = 0;
  while (stream >> token) {
    if (int op = FindOperation(token); op >= 0) {
      if (depth < kOperations[op].count) TVM_FFI_THROW(ValueError) << "malformed expression '" << text << "'";
      depth -= kOperations[op].count - 1;
      steps_.push_back({op, 0});
      continue;
    }
    bool load = token[0] == 's';
    int64_t value = ParseInteger(load ? token.substr(1) : token, text);
    if (load && (value < 0 || value >= slot_count)) TVM_FFI_THROW(ValueError) << "no slot " << token << " in '" << text << "'";
    steps_.push_back({load ? kLoad : kPush, value});
    deepest = std::max(deepest, ++depth);
  }
  if (depth != 1 || deepest > kMaxDepth) TVM_FFI_THROW(ValueError) << "malformed expression '" << text << "'";
  if (steps_.size() == 1) {
    form_ = steps_[0].op == kLoad ? Form::kSlot : Form::kConstant;
    constant_ = steps_[0].value;
  } else {
    form_ = Form::kProgram;
  }
}

int64_t Expression::Run(const int64_t* slots) const {
  int64_t stack[kMaxDepth];
  int64_t* top = stack;  // one past the last value
  for (const Step& step : steps_) {
    if (step.op == kPush) {
      *top++ = step.value;
    } else if (step.op == kLoad) {
      *top++ = slots[step.value];
    } else {
      top -= kOperations[step.op].count;
      *top = kOperations[step.op].run(top);
      ++top;
    }
  }
  return stack[0];
}

std::string Expression::Render(const std::vector<std::string>& names) const {
  std::vector<std::string> stack;
  for (const Step& step : steps_) {
    if (step.op == kPush) {
      stack.push_back(std::to_string(step.value));
      continue;
    }
    if (step.op == kLoad) {
      stack.push_back(names[step.value]);
      continue;
    }
    const Operation& op = kOperations[step.op];
    std::vector<std::string> operands(stack.end() - op.count, stack.end());
    stack.resize(stack.size() - op.count);
    bool last = &step == &steps_.back();
    if (op.symbol != nullptr) {
      std::string infix = operands[0] + " " + op.symbol + " " + operands[1];
      stack.push_back(last ? infix : "(" + infix + ")");
      continue;
    }
    std::string call = std::string(op.name) + "(";
    for (int i = 0; i < op.count; ++i) call += (i ? ", " : "") + operands[i];
    stack.push_back(call + ")");
  }
  return stack.empty() ? std::to_string(constant_) : stack[0];
}

std::vector<int> Expression::Slots() const {
  std::set<int> found;
  for (const Step& step : steps_) {
    if (step.op == kLoad) found.insert(static_cast<int>(step.value));
  }
  return {found.begin(), found.end()};
}

}  // namespace tilelang
