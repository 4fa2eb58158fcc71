// Matching by wildcards without recursion, and similarity of names by longest common subsequence.
#include "quant/wildcard.h"

#include <algorithm>

namespace qinfer::quant {
namespace {

// Long inputs are cut: this only ranks suggestions.
size_t CommonLetters(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 160;
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  std::vector<size_t> row(b.size() + 1, 0);
  for (char c : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = c == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]);
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

bool WildcardMatch(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> CloseNames(std::string_view pattern,
                                    const std::vector<std::string_view>& names, size_t limit) {
  struct Scored {
    double score;
    std::string_view name;
  };
  std::vector<Scored> scored;
  scored.reserve(names.size());
  for (std::string_view name : names) {
    const double common = static_cast<double>(CommonLetters(pattern, name));
    scored.push_back({2.0 * common / static_cast<double>(pattern.size() + name.size() + 1), name});
  }
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  std::vector<std::string> close;
  for (size_t i = 0; i < scored.size() && i < limit; ++i) close.emplace_back(scored[i].name);
  return close;
}

}  // namespace qinfer::quant
