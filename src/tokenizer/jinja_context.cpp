// Binding of arguments to parameters.
#include "tokenizer/jinja_context.h"

#include <algorithm>

#include "tokenizer/jinja_ops.h"

namespace qinfer::tokenizer::jinja {

BoundArgs::BoundArgs(Context* context, std::string_view function, const CallArgs& args,
                     std::initializer_list<std::string_view> parameters, size_t required)
    : context_(context),
      function_(function),
      values_(parameters.size()),
      has_(parameters.size(), false) {
  if (args.positional.size() > parameters.size()) {
    context->Fail(StrCat(function_, "() takes at most ", parameters.size(), " arguments (",
                         args.positional.size(), " given)"));
    return;
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = args.positional[i];
    has_[i] = true;
  }
  for (const auto& [name, value] : args.named) {
    const auto* at = std::find(parameters.begin(), parameters.end(), name);
    if (at == parameters.end()) {
      context->Fail(StrCat(function_, "() got an unexpected keyword argument '", name, "'"));
      return;
    }
    const auto i = static_cast<size_t>(at - parameters.begin());
    if (has_[i]) {
      context->Fail(StrCat(function_, "() got multiple values for argument '", name, "'"));
      return;
    }
    values_[i] = value;
    has_[i] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (has_[i]) continue;
    context->Fail(StrCat(function_, "() missing required argument '",
                         std::string(*(parameters.begin() + i)), "'"));
    return;
  }
}

int64_t BoundArgs::Int(size_t i, int64_t otherwise) const {
  if (!has_[i]) return otherwise;
  if (values_[i].IsInteger()) return values_[i].AsInt();
  context_->Fail(StrCat(function_, "(): an integer is required (got type ",
                        std::string(TypeName(values_[i])), ")"));
  return otherwise;
}

std::string_view BoundArgs::Text(size_t i, std::string_view otherwise) const {
  if (!has_[i]) return otherwise;
  if (values_[i].IsString()) return values_[i].AsString();
  context_->Fail(
      StrCat(function_, "() argument must be str, not ", std::string(TypeName(values_[i]))));
  return otherwise;
}

}  // namespace qinfer::tokenizer::jinja
