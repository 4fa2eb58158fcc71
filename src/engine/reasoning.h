// Telling a generation's reasoning from its answer: the interface, and the splitter by the tags
// that a model writes around its reasoning; harmony.h has the one for channels. What may become a
// tag is held back. Knows no tokens; the caller has already cut the text at stop strings and made
// it valid UTF-8.
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

// Text in, pieces of channels out, without what marks them. However a text is cut up for Push, the
// pieces of each channel join to the same.
class ChannelSplitter {
 public:
  struct Piece {
    Channel channel = Channel::kText;
    std::string text;  // not empty
  };

  virtual ~ChannelSplitter() = default;
  virtual void Push(std::string_view text, std::vector<Piece>* out) = 0;
  // The end: what was held back turned out to be no mark.
  virtual void Flush(std::vector<Piece>* out) = 0;
  // Of the text that comes next.
  virtual Channel channel() const = 0;

 protected:
  // Adds to the last piece where that is of the same channel; nothing for an empty text.
  static void AppendPiece(Channel channel, std::string_view text, std::vector<Piece>* out);
};

class ReasoningSplitter final : public ChannelSplitter {
 public:
  // `tags` have passed ValidateTags.
  ReasoningSplitter(ReasoningTags tags, Channel start) : tags_(std::move(tags)), channel_(start) {}

  // After a begin tag comes reasoning and after an end tag comes text, whatever came before, so
  // that a tag never shows.
  void Push(std::string_view text, std::vector<Piece>* out) override;
  void Flush(std::vector<Piece>* out) override;
  Channel channel() const override { return channel_; }

 private:
  ReasoningTags tags_;
  Channel channel_;
  std::string held_;  // the start of a tag, perhaps
};

}  // namespace qinfer::engine
