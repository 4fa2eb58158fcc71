// What filters, tests, methods and operators need while a template renders: the meter, the first
// error, and a way to call back. The evaluator (jinja_interp.h) is the one implementation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "core/status.h"
#include "tokenizer/jinja_value.h"

namespace qinfer::tokenizer::jinja {

struct CallArgs {
  explicit CallArgs(Meter* meter) : positional(meter), named(meter) {}
  Items positional;
  CountedVector<std::pair<Text, Value>> named;
};

// As much of a value's text as a message quotes; whole characters.
std::string Quoted(std::string_view text);

class Context {
 public:
  Context(uint64_t max_steps, uint64_t max_memory_bytes, Memory* memory)
      : meter_(max_steps, max_memory_bytes, memory) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  virtual ~Context() = default;

  virtual Value Call(const Value& callee, const CallArgs& args) = 0;
  // strftime_now's clock.
  virtual int64_t now_unix_seconds() const = 0;

  Meter* meter() { return &meter_; }
  bool ok() const { return status_.ok() && meter_.over() == nullptr; }
  const Status& status() const { return status_; }

  // Notes the first error and returns undefined, so that `return context->Fail(...)` reads well. A
  // message quotes text of the template's values by Quoted, since they may be long.
  Value Fail(const std::string& message) { return FailWith(MisuseError(message)); }
  Value FailUnsupported(const std::string& message) { return FailWith(UnsupportedError(message)); }
  // An operation on an undefined value.
  Value FailUndefined(const Value& undefined);

  Value String(Text&& text, bool markup = false) { return Value::String(std::move(text), markup); }
  Value String(std::string_view text, bool markup = false) {
    return Value::String(Text(text, &meter_), markup);
  }
  Value String(const char* text, bool markup = false) {
    return String(std::string_view(text), markup);
  }
  Value List(Items items) { return Value::List(std::move(items)); }
  Value Tuple(Items items) { return Value::Tuple(std::move(items)); }
  Value Tuple(std::initializer_list<Value> items) { return Tuple(Items(items, &meter_)); }
  // An undefined value and why it is; the parts of the message are joined.
  Value Undefined(std::initializer_list<std::string_view> message);

 private:
  Value FailWith(Status status) {
    if (status_.ok()) status_ = std::move(status);
    return Value();
  }

  Meter meter_;
  Status status_;
};

// A call's arguments by the parameters' names, as Python binds them.
class BoundArgs {
 public:
  // Fails in `context` if an argument is unknown, doubled, missing (of the first `required`) or
  // too much. `function` is for messages, and outlives this.
  BoundArgs(Context* context, std::string_view function, const CallArgs& args,
            std::initializer_list<std::string_view> parameters, size_t required);

  bool Has(size_t i) const { return has_[i]; }
  // Absent, or none.
  bool IsNone(size_t i) const { return !has_[i] || values_[i].IsNone(); }
  const Value& operator[](size_t i) const { return values_[i]; }
  bool Bool(size_t i, bool otherwise) const { return has_[i] ? Truth(values_[i]) : otherwise; }
  // Fails if there is a value that is no integer.
  int64_t Int(size_t i, int64_t otherwise) const;
  // Fails if there is a value that is no string.
  std::string_view Text(size_t i, std::string_view otherwise) const;

 private:
  static constexpr size_t kMaxParameters = 5;

  Context* context_;
  std::string_view function_;
  std::array<Value, kMaxParameters> values_;
  std::array<bool, kMaxParameters> has_{};
};

}  // namespace qinfer::tokenizer::jinja
