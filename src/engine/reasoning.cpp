// The splitter: a search for two tags over text that arrives in pieces.
#include "engine/reasoning.h"

#include <algorithm>

#include "engine/text_stream.h"

namespace qinfer::engine {

Status ValidateTags(const ReasoningTags& tags) {
  for (const std::string* tag : {&tags.begin, &tags.end}) {
    const char* name = tag == &tags.begin ? "begin" : "end";
    if (tag->empty()) {
      return MisuseError(StrCat("the ", name, " tag of reasoning is empty"));
    }
    std::string valid;
    AppendValidUtf8(*tag, &valid);
    if (valid != *tag) return MisuseError(StrCat("the ", name, " tag of reasoning is not UTF-8"));
  }
  // The longer one could never be completed, or which one is meant would depend on what came first.
  if (tags.begin.find(tags.end) != std::string::npos ||
      tags.end.find(tags.begin) != std::string::npos) {
    return MisuseError(StrCat("the tags of reasoning, '", tags.begin, "' and '", tags.end,
                              "', contain one another: they cannot be told apart"));
  }
  return OkStatus();
}

bool OpensReasoning(std::string_view prompt, const ReasoningTags& tags) {
  const auto trim = [](std::string_view text) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  };
  const std::string_view tag = trim(tags.begin);  // a tag may end with white space of its own
  return !tag.empty() && trim(prompt).ends_with(tag);
}

void ReasoningSplitter::Push(std::string_view text, std::vector<Piece>* out) {
  held_.append(text);
  std::string_view rest(held_);
  for (;;) {
    const size_t begin = rest.find(tags_.begin), end = rest.find(tags_.end);
    const size_t first = std::min(begin, end);
    if (first == std::string_view::npos) break;
    AppendPiece(channel_, rest.substr(0, first), out);
    rest.remove_prefix(first + (first == begin ? tags_.begin : tags_.end).size());
    channel_ = first == begin ? Channel::kReasoning : Channel::kText;
  }
  const size_t keep = std::max(PartialMatch(rest, tags_.begin), PartialMatch(rest, tags_.end));
  AppendPiece(channel_, rest.substr(0, rest.size() - keep), out);
  held_.erase(0, held_.size() - keep);
}

void ReasoningSplitter::Flush(std::vector<Piece>* out) {
  AppendPiece(channel_, held_, out);
  held_.clear();
}

void ChannelSplitter::AppendPiece(Channel channel, std::string_view text, std::vector<Piece>* out) {
  if (text.empty()) return;
  if (out->empty() || out->back().channel != channel) out->push_back({channel, {}});
  out->back().text.append(text);
}

}  // namespace qinfer::engine
