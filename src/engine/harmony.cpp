// Headers and bodies of messages, by the markers between them.
#include "engine/harmony.h"

#include <algorithm>
#include <utility>

namespace qinfer::engine {
namespace {

// Longer than any header of a role, a recipient, a channel and a type of contents.
constexpr size_t kMaxHeader = 256;
// Tokens of a prompt's last header that are looked at: more than kMaxHeader bytes are none.
constexpr size_t kMaxHeaderTokens = kMaxHeader + 8;

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kConstrain = "<|constrain|>", kEnd = "<|end|>", kCall = "<|call|>",
                           kReturn = "<|return|>";
constexpr std::string_view kMarkers[] = {kStart, kChannel, kMessage, kConstrain,
                                         kEnd,   kCall,    kReturn};

std::string_view FirstWord(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpace)));
  return text.substr(0, text.find_first_of(kSpace));
}

}  // namespace

void HarmonySplitter::Meet(Marker marker) {
  switch (marker) {
    case Marker::kStart:
    case Marker::kChannel:
      in_header_ = true;
      named_ = marker == Marker::kChannel;
      break;
    case Marker::kConstrain:
      // Between a channel and the type of what it holds.
      if (in_header_) header_ += ' ';
      return;
    case Marker::kMessage:
      if (!in_header_) return;
      channel_ = named_ && FirstWord(header_) != "final" ? Channel::kReasoning : Channel::kText;
      in_header_ = false;
      break;
    case Marker::kEnd:
      in_header_ = false;
      channel_ = Channel::kText;
      break;
  }
  header_.clear();
  role_given_ = false;
}

void HarmonySplitter::Take(std::string_view text, std::vector<Piece>* out) {
  if (!in_header_) {
    AppendPiece(channel_, text, out);
    return;
  }
  header_.append(text);
  if (header_.size() <= kMaxHeader) return;
  in_header_ = false;
  channel_ = Channel::kText;
  AppendPiece(channel_, header_, out);
  header_.clear();
}

void HarmonySplitter::Push(std::string_view text, std::vector<Piece>* out) {
  held_.append(text);
  std::string_view rest(held_);
  while (!rest.empty()) {
    Take(rest.substr(0, rest.find('<')), out);
    rest.remove_prefix(std::min(rest.size(), rest.find('<')));
    const auto found = std::find_if(std::begin(kMarkers), std::end(kMarkers),
                                    [&](std::string_view m) { return rest.starts_with(m); });
    if (found != std::end(kMarkers)) {
      rest.remove_prefix(found->size());
      const auto index = static_cast<size_t>(found - std::begin(kMarkers));
      Meet(static_cast<Marker>(std::min(index, static_cast<size_t>(Marker::kEnd))));
      continue;
    }
    const bool may_become = std::any_of(std::begin(kMarkers), std::end(kMarkers),
                                        [&](std::string_view m) { return m.starts_with(rest); });
    if (may_become) break;  // nothing at all, too
    Take(rest.substr(0, 1), out);
    rest.remove_prefix(1);
  }
  held_.erase(0, held_.size() - rest.size());
}

void HarmonySplitter::Flush(std::vector<Piece>* out) {
  Take(std::exchange(held_, {}), out);
  if (in_header_ && role_given_) {
    channel_ = Channel::kText;
    AppendPiece(channel_, header_, out);
  }
  header_.clear();
}

void HarmonySplitter::Begin(std::string_view prompt) {
  std::vector<Piece> none;
  Push(prompt, &none);
  held_.clear();
  if (!in_header_ || named_ || header_.empty()) return;
  // After `<|start|>assistant` everything else of a header may follow, or a model's plain words.
  role_given_ = true;
  header_.clear();
}

std::vector<int32_t> HarmonyMarkers(const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view marker : kMarkers) {
    const int32_t id = tokenizer.TokenId(marker);
    if (id >= 0 && tokenizer.IsSpecial(id)) {
      ids.push_back(id);
    } else if (marker == kStart || marker == kChannel || marker == kMessage || marker == kEnd) {
      return {};
    }
  }
  return ids;
}

std::string HarmonyStart(const tokenizer::Tokenizer& tokenizer, absl::Span<const int32_t> prompt) {
  const int32_t message = tokenizer.TokenId(kMessage), constrain = tokenizer.TokenId(kConstrain);
  std::vector<int32_t> ids = HarmonyMarkers(tokenizer);
  ids.erase(std::remove(ids.begin(), ids.end(), constrain), ids.end());
  // The last marker before `end` that is none between a channel and a type.
  const auto last = [&](size_t end) {
    while (end > 0 && std::find(ids.begin(), ids.end(), prompt[end - 1]) == ids.end()) --end;
    return end;  // one past it; 0 = none
  };
  size_t begin = last(prompt.size()), end = prompt.size();
  if (begin == 0) return {};
  if (prompt[begin - 1] == message) {  // its header is in front of it; the body does not matter
    end = begin;
    begin = std::max<size_t>(1, last(begin - 1));
  }
  begin = std::max(begin - 1, end - std::min(end, kMaxHeaderTokens));
  std::string text;
  for (const int32_t token : prompt.subspan(begin, end - begin)) {
    tokenizer.AppendToken(token, /*first=*/false, /*skip_special=*/false, &text);
  }
  return text;
}

}  // namespace qinfer::engine
