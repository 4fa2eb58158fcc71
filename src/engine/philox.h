// The counter-based random generator of sampling: Philox4x32 with 10 rounds (Salmon et al., 2011).
// A number is a pure function of key and counter, so that results depend neither on timing nor on
// what else runs. Nothing but the generator lives here.
#pragma once

#include <array>
#include <cstdint>

namespace qinfer::engine {

inline std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: the number that belongs to `seed` and token `position`.
inline double UniformAt(uint64_t seed, uint64_t position) {
  const auto r =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0u, 0u},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{r[1]} << 32) | r[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace qinfer::engine
