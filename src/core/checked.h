// Arithmetic on sizes that come from files or callers: overflow is an answer, never a wrap. Nothing
// else lives here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qinfer {

// *out = a + b; false on overflow.
template <typename T>
[[nodiscard]] inline bool CheckedAdd(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}
// *out = a * b; false on overflow.
template <typename T>
[[nodiscard]] inline bool CheckedMul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}

// Rounds up to a multiple of `to` (a power of two not needed). The caller has checked that x + to
// does not overflow.
template <typename T>
constexpr T RoundUp(T x, T to) {
  return (x + to - 1) / to * to;
}
template <typename T>
constexpr T CeilDiv(T x, T by) {
  return (x + by - 1) / by;
}

}  // namespace qinfer
