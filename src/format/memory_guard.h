// Turns an allocator's refusal inside a parser (std::bad_alloc out of a std::pmr container) into a
// status, so that opening a file never throws. Nothing else is caught here.
#pragma once

#include <new>
#include <utility>

#include "core/bad_alignment.h"
#include "core/memory.h"
#include "core/status.h"

namespace qinfer::format {

// Runs `body` (which returns a Status or StatusOr) and returns what it returns.
template <typename Body>
auto CatchNoMemory(const std::string& what, const Memory* memory, Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const BudgetExceeded&) {
    return BudgetError(StrCat(what, ": its tables would exceed host_bytes_limit (",
                              memory->limit_bytes(), " bytes, ",
                              memory->used_bytes() + memory->mapped_bytes(), " in use)"));
  } catch (const BadAlignment& e) {
    return MisuseError(e.what());
  } catch (const std::bad_alloc&) {
    return NoMemoryError(StrCat("no memory for the tables of ", what));
  }
}

}  // namespace qinfer::format
