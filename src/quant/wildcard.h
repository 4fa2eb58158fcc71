// Patterns of tensor names as recipes use them, and which known names a mistyped one may have
// meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qinfer::quant {

// '*' matches any run of bytes, '?' one byte, everything else itself; the whole name must match.
// Takes at most |pattern| * |name| steps.
bool WildcardMatch(std::string_view pattern, std::string_view name);

// Up to `limit` of `names` that are nearest to `pattern` (by common letters in order), best first,
// equals in the order given.
std::vector<std::string> CloseNames(std::string_view pattern,
                                    const std::vector<std::string_view>& names, size_t limit);

}  // namespace qinfer::quant
