// Telling reasoning from answer in Harmony, the format of gpt-oss: messages with a header each that
// names a channel, `<|start|>assistant<|channel|>analysis<|message|>...<|end|>`. Headers and
// markers are taken away. Knows no tokens, as the splitter by tags; `HarmonyStart` says how a
// prompt ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "engine/reasoning.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::engine {

class HarmonySplitter final : public ChannelSplitter {
 public:
  // `start`: the channel of a message that is going on.
  explicit HarmonySplitter(Channel start = Channel::kText) : channel_(start) {}
  // What comes before the generation: markers and headers count, nothing is shown.
  void Begin(std::string_view prompt);

  // `final` and messages without a channel are text; `analysis`, `commentary` and what may follow
  // are reasoning, and so is a tool's call. What stands outside of any message is text. A header
  // that is cut off is dropped; one that is too long to be one is text.
  void Push(std::string_view text, std::vector<Piece>* out) override;
  void Flush(std::vector<Piece>* out) override;
  Channel channel() const override { return channel_; }

 private:
  enum class Marker : uint8_t { kStart, kChannel, kMessage, kConstrain, kEnd };

  void Meet(Marker marker);
  void Take(std::string_view text, std::vector<Piece>* out);

  Channel channel_;
  bool in_header_ = false, named_ = false;  // named_: by <|channel|>
  bool role_given_ = false;  // the prompt has opened the header: what comes may be no header at all
  std::string header_;       // since its last marker
  std::string held_;         // the start of a marker, perhaps
};

// Ids of the markers; empty where the vocabulary does not have them as special tokens: then the
// model does not write this format.
std::vector<int32_t> HarmonyMarkers(const tokenizer::Tokenizer& tokenizer);

// The end of a prompt as text, as far as HarmonySplitter::Begin needs it: from the beginning of the
// header that the last message has. Empty where no marker is in it.
std::string HarmonyStart(const tokenizer::Tokenizer& tokenizer, absl::Span<const int32_t> prompt);

}  // namespace qinfer::engine
