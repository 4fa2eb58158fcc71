// The tokenizer functions of model.h.
#include <memory_resource>
#include <string>

#include "api/model.h"
#include "api/structs.h"
#include "tokenizer/tokenizer.h"

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace
using qinfer::tokenizer::Tokenizer;

extern "C" {

qinfer_status qinfer_tokenizer_encode(const qinfer_model* model, const char* text, size_t text_size,
                                      uint64_t flags, int32_t* ids, size_t capacity,
                                      size_t* out_count, qinfer_error* err) {
  if (out_count != nullptr) *out_count = 0;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    QINFER_RETURN_IF_ERROR(
        KnownFlags(flags, QINFER_ENCODE_NO_SPECIAL | QINFER_ENCODE_LITERAL, "flags"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    QINFER_ASSIGN_OR_RETURN(const std::string_view input, Text(text, text_size, "text"));
    qinfer::tokenizer::EncodeOptions options;
    options.add_special = (flags & QINFER_ENCODE_NO_SPECIAL) == 0;
    options.parse_special = (flags & QINFER_ENCODE_LITERAL) == 0;
    std::pmr::vector<int32_t> found(&model->runtime->memory);
    QINFER_RETURN_IF_ERROR(model->state->tokenizer()->Encode(input, options, &found));
    return Deliver(absl::Span<const int32_t>(found.data(), found.size()), ids, capacity, out_count,
                   "ids");
  });
}

qinfer_status qinfer_tokenizer_decode(const qinfer_model* model, const int32_t* ids, size_t count,
                                      uint64_t flags, char* buffer, size_t capacity,
                                      size_t* out_size, size_t* out_complete, qinfer_error* err) {
  if (out_size != nullptr) *out_size = 0;
  if (out_complete != nullptr) *out_complete = 0;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_size, "out_size"));
    QINFER_RETURN_IF_ERROR(
        KnownFlags(flags, QINFER_DECODE_SKIP_SPECIAL | QINFER_DECODE_CONTINUE, "flags"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const int32_t> tokens, Array(ids, count, "ids"));
    const Tokenizer& tokenizer = *model->state->tokenizer();
    const bool skip_special = (flags & QINFER_DECODE_SKIP_SPECIAL) != 0;
    std::string text;
    // Token by token, since only whole texts can be decoded as such: the bytes of a part may begin
    // or end inside a character.
    bool at_start = (flags & QINFER_DECODE_CONTINUE) == 0;
    for (const int32_t id : tokens) {
      tokenizer.AppendToken(id, at_start, skip_special, &text);
      at_start = at_start && tokenizer.IsSpecial(id);
    }
    QINFER_RETURN_IF_ERROR(Deliver(absl::Span<const char>(text.data(), text.size()), buffer,
                                   capacity, out_size, "buffer"));
    if (out_complete != nullptr) {
      *out_complete = text.size() - qinfer::tokenizer::IncompleteUtf8Tail(text);
    }
    return QINFER_OK;
  });
}

qinfer_status qinfer_tokenizer_special(const qinfer_model* model, uint32_t which, int32_t* out,
                                       qinfer_error* err) {
  if (out != nullptr) *out = QINFER_TOKEN_NONE;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    if (which != QINFER_TOKEN_BOS && which != QINFER_TOKEN_EOS) {
      return BadOption(qinfer::StrCat("which is ", which, ", known are 1 (BOS) and 2 (EOS)"));
    }
    const Tokenizer& tokenizer = *model->state->tokenizer();
    *out = which == QINFER_TOKEN_BOS ? tokenizer.bos_id() : tokenizer.eos_id();
    return QINFER_OK;
  });
}

qinfer_status qinfer_tokenizer_token(const qinfer_model* model, int32_t id, qinfer_str* out_text,
                                     int32_t* out_special, qinfer_error* err) {
  if (out_text != nullptr) *out_text = qinfer_str{};
  if (out_special != nullptr) *out_special = 0;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_text, "out_text"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    const Tokenizer& tokenizer = *model->state->tokenizer();
    if (id < 0 || static_cast<uint32_t>(id) >= tokenizer.vocab_size()) {
      return BadOption(
          qinfer::StrCat("token ", id, " is not in [0, ", tokenizer.vocab_size(), ")"));
    }
    *out_text = Str(tokenizer.TokenText(id));
    if (out_special != nullptr) *out_special = tokenizer.IsSpecial(id) ? 1 : 0;
    return QINFER_OK;
  });
}

qinfer_status qinfer_tokenizer_find(const qinfer_model* model, const char* text, size_t text_size,
                                    int32_t* out, qinfer_error* err) {
  if (out != nullptr) *out = QINFER_TOKEN_NONE;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    QINFER_ASSIGN_OR_RETURN(const std::string_view spelled, Text(text, text_size, "text"));
    *out = model->state->tokenizer()->TokenId(spelled);
    return QINFER_OK;
  });
}

qinfer_status qinfer_tokenizer_size(const qinfer_model* model, uint32_t* out, qinfer_error* err) {
  if (out != nullptr) *out = 0;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedTokenizer(*model->state));
    *out = model->state->tokenizer()->vocab_size();
    return QINFER_OK;
  });
}

}  // extern "C"
