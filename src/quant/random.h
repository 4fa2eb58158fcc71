// Counter-based random numbers: functions of seed, stream and counter, without state, so that what
// they choose does not depend on timing or threads.
#pragma once

#include <cstdint>

namespace qinfer::quant {

inline uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Number `counter` of stream (seed, stream).
inline uint64_t RandomAt(uint64_t seed, uint64_t stream, uint64_t counter) {
  return MixBits(MixBits(MixBits(seed) ^ stream) ^ counter);
}
// Uniform in [0, 1), 53 bits.
inline double RandomUnit(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(RandomAt(seed, stream, counter) >> 11) * 0x1p-53;
}

}  // namespace qinfer::quant
