// Errors and their messages, and the binding of arguments to parameters.
#include "tokenizer/jinja_context.h"

#include <algorithm>

#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {

std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 1000;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;
  DecodeUtf8Back(text, &end);
  return StrCat(std::string(text.substr(0, end)), "...");
}

Value Context::FailUndefined(const Value& undefined) {
  return Fail(undefined.object() == nullptr ? "a value is undefined"
                                            : Quoted(undefined.As<UndefinedObject>()->message));
}

Value Context::Undefined(std::initializer_list<std::string_view> message) {
  return Value::Undefined(Joined(&meter_, message));
}

BoundArgs::BoundArgs(Context* context, std::string_view function, const CallArgs& args,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : context_(context), function_(function) {
  if (args.positional.size() > parameters.size()) {
    context->Fail(StrCat(std::string(function_), "() takes at most ", parameters.size(),
                         " arguments (", args.positional.size(), " given)"));
    return;
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = args.positional[i];
    has_[i] = true;
  }
  for (const auto& [name, value] : args.named) {
    const auto* at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end()) {
      context->Fail(StrCat(std::string(function_), "() got an unexpected keyword argument '",
                           Quoted(name), "'"));
      return;
    }
    const auto i = static_cast<size_t>(at - parameters.begin());
    if (has_[i]) {
      context->Fail(StrCat(std::string(function_), "() got multiple values for argument '",
                           Quoted(name), "'"));
      return;
    }
    values_[i] = value;
    has_[i] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (has_[i]) continue;
    context->Fail(StrCat(std::string(function_), "() missing required argument '",
                         std::string(*(parameters.begin() + i)), "'"));
    return;
  }
}

int64_t BoundArgs::Int(size_t i, int64_t otherwise) const {
  if (!has_[i]) return otherwise;
  if (values_[i].IsInteger()) return values_[i].AsInt();
  context_->Fail(StrCat(std::string(function_), "(): an integer is required (got type ",
                        std::string(TypeName(values_[i])), ")"));
  return otherwise;
}

std::string_view BoundArgs::Text(size_t i, std::string_view otherwise) const {
  if (!has_[i]) return otherwise;
  if (values_[i].IsString()) return values_[i].AsString();
  context_->Fail(StrCat(std::string(function_), "() argument must be str, not ",
                        std::string(TypeName(values_[i]))));
  return otherwise;
}

}  // namespace qinfer::tokenizer::jinja
