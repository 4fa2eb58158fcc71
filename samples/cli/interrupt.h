// Signals that ask the program to end, noted where something would be left half done.
#pragma once

#include <signal.h>

#include <cstdint>

namespace cli {

// While it lives, an interrupt is noted instead of ending the program. What the program was started
// to ignore (nohup, a shell's background) stays ignored. Guards may nest.
class InterruptGuard {
 public:
  // kAll: also SIGTERM and the end of the terminal.
  enum class Signals : uint8_t { kInterrupt, kAll };
  explicit InterruptGuard(Signals signals);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool Seen();
  static void Clear();
  static void ThrowIfSeen(const char* title);  // Error with the exit code of the signal

 private:
  const Signals signals_;
  struct sigaction old_int_ = {}, old_term_ = {}, old_hup_ = {};
};

}  // namespace cli
