// Telling a generation's reasoning from its answer by the tags that a model writes around it. Text
// in, pieces of one channel each out, the tags taken away and what may become a tag held back.
// Knows no tokens; the caller has already cut the text at stop strings and made it valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace qinfer::engine {

enum class Channel : uint8_t { kText, kReasoning };

struct ReasoningTags {
  std::string begin = "<think>";
  std::string end = "</think>";
};

// MisuseError for a tag that is empty, no UTF-8, or part of the other one.
Status ValidateTags(const ReasoningTags& tags);

// Whether `prompt` ends with the begin tag, but for white space: templates of some models open the
// reasoning themselves, and generation starts inside it.
bool OpensReasoning(std::string_view prompt, const ReasoningTags& tags);

class ReasoningSplitter {
 public:
  struct Piece {
    Channel channel = Channel::kText;
    std::string text;  // not empty
  };

  // `tags` have passed ValidateTags.
  ReasoningSplitter(ReasoningTags tags, Channel start) : tags_(std::move(tags)), channel_(start) {}

  // After a begin tag comes reasoning and after an end tag comes text, whatever came before, so
  // that a tag never shows. However a text is cut up for Push, the pieces of each channel join to
  // the same.
  void Push(std::string_view text, std::vector<Piece>* out);
  // The end: what was held back turned out to be no tag.
  void Flush(std::vector<Piece>* out);
  // Of the text that comes next.
  Channel channel() const { return channel_; }

 private:
  void Emit(std::string_view text, std::vector<Piece>* out) const;

  ReasoningTags tags_;
  Channel channel_;
  std::string held_;  // the start of a tag, perhaps
};

}  // namespace qinfer::engine
