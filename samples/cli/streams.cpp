// The standard streams; see streams.h.
#include "streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace cli {
namespace {

bool ReaderIsGone() {
  pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

bool OutputIsLost() { return std::fflush(stdout) != 0 || std::ferror(stdout) != 0; }

// Bytes of the UTF-8 character at the beginning of `text`, and its code point; 0 where it is none.
size_t Decode(std::string_view text, uint32_t* code_point) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    *code_point = first;
    return 1;
  }
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  uint32_t value = first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[size] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
  *code_point = value;
  return size;
}

}  // namespace

bool TakeStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The wrong way round, so that using it is still an error.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return false;
  }
  return true;
}

void FlushOutput() {
  if (OutputIsLost()) throw OutputFailed();
}

int FinishOutput(int code) {
  if (!OutputIsLost()) return code;
  if (!ReaderIsGone()) Complain(OutputFailed().what());
  return code == 0 ? 1 : code;
}

std::string Visible(std::string_view text, std::string_view keep) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    uint32_t code_point = static_cast<unsigned char>(text.front());
    const size_t size = Decode(text, &code_point);
    const bool controls = code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
    if (size == 0 || (controls && keep.find(text.front()) == std::string_view::npos)) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned>(code_point & 0xff));
      shown += escape;
    } else {
      shown += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return shown;
}

std::string ForStream(std::string_view text, std::FILE* stream) {
  return isatty(fileno(stream)) == 1 ? Visible(text, "\n\t") : std::string(text);
}

void Complain(std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "qinfer: %s\n", Visible(message).c_str());
}

}  // namespace cli
