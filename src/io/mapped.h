// What of a source counts as mapped.
#pragma once

#include <cstdint>

#include "io/source.h"

namespace qinfer::io {

// Bytes that a Memory counts as mapped for it: of a map of ours, not of one that the host gave.
uint64_t MappedBytes(const Source& source);

}  // namespace qinfer::io
