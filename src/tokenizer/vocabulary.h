// Ids of texts while a spec is being read: of the model's tokens, and of added ones, which get
// theirs here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/status.h"
#include "tokenizer/spec.h"
#include "tokenizer/text_table.h"

namespace qinfer::tokenizer {

class Vocabulary {
 public:
  explicit Vocabulary(TokenizerSpec* spec) : spec_(spec), model_(*spec), added_(*spec) {}

  // Takes in some more of the model's tokens; true when all are there. FormatError for a text that
  // occurs twice.
  StatusOr<bool> IndexTokens();
  // Of model tokens.
  TextTable& model() { return model_; }
  const TextTable& model() const { return model_; }

  // Appends merges [begin, end) of a list to the spec, with ids and in their order. `read(i,
  // merge)` gives the texts of one, which live until they are looked up; `missing(i, merge)` is the
  // error of one that names a token that is not there.
  template <typename Read, typename Missing>
  Status AddMerges(size_t begin, size_t end, Read&& read, Missing&& missing) {
    constexpr size_t kBatch = 32;
    TextTable::Merge batch[kBatch];
    for (size_t done = begin; done < end;) {
      const size_t count = std::min(kBatch, end - done);
      for (size_t i = 0; i < count; ++i) {
        QINFER_RETURN_IF_ERROR(read(done + i, &batch[i]));
        model_.ExpectMerge(&batch[i]);
      }
      for (size_t i = 0; i < count; ++i) {
        SpecMerge merge = {0, 0, static_cast<uint32_t>(done + i), 0};
        if (!model_.FindMerge(batch[i], &merge.left, &merge.right, &merge.result)) {
          return missing(done + i, batch[i]);
        }
        spec_->merges.push_back(merge);
      }
      done += count;
    }
    return OkStatus();
  }

  // Gives some more added tokens their ids: those of the model's vocabulary where it has the text,
  // else the next free ones, in order. Drops empty contents and repetitions. True when all have
  // one. After IndexTokens.
  StatusOr<bool> AssignAddedIds();
  // Of a model or an added token, after both; -1 = none.
  int64_t Find(std::string_view text) const;

 private:
  enum class Phase : uint8_t { kReserve, kClear, kFill };
  Status Assign(size_t index);

  TokenizerSpec* spec_;
  TextTable model_, added_;  // ids; indices in spec.added
  Phase phase_ = Phase::kReserve;
  size_t at_ = 0;
  size_t kept_ = 0;       // added tokens with an id
  int64_t largest_ = -1;  // of these ids
};

}  // namespace qinfer::tokenizer
