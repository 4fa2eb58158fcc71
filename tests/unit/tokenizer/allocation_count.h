// What operator new has given out in this program, and the most of it: for tests of how much memory
// something takes. Replacing the operators is in allocation_count.cpp.
#pragma once

#include <cstdint>

namespace qinfer::tokenizer {

// Begins a new peak; returns what is allocated now.
int64_t RestartPeak();
int64_t PeakBytes();

}  // namespace qinfer::tokenizer
