// Where the library's few messages go: a callback of the host, or nowhere. Nothing here formats,
// stores or prints. Callers never hold a lock while they write, because the host may call back into
// the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace qinfer {

enum class LogLevel : uint8_t { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Copyable: it is two pointers and a level.
class Log {
 public:
  // `text` is UTF-8 with a NUL after its `length` bytes. Called from any thread.
  using Callback = void (*)(void* user, LogLevel level, const char* text, size_t length);

  Log() = default;  // silent
  Log(Callback callback, void* user, LogLevel most_verbose = LogLevel::kInfo)
      : callback_(callback), user_(user), most_verbose_(most_verbose) {}

  // Ask before building an expensive message.
  bool Enabled(LogLevel level) const { return callback_ != nullptr && level <= most_verbose_; }
  void Write(LogLevel level, const std::string& text) const {
    if (Enabled(level)) callback_(user_, level, text.c_str(), text.size());
  }

 private:
  Callback callback_ = nullptr;
  void* user_ = nullptr;
  LogLevel most_verbose_ = LogLevel::kInfo;
};

}  // namespace qinfer
