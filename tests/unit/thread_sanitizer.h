// Whether the thread sanitizer watches. It looks for races, and makes everything many times slower:
// under it, of many cases in which the same threads do the same a few are enough, and what one
// thread works through alone says nothing.
#pragma once

#include "core/sanitizer.h"

namespace qinfer {

#if defined(QINFER_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace qinfer
