// A file that tests write into a string.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/types/span.h"
#include "core/status.h"
#include "io/source.h"

namespace qinfer::format::testing {

// It can be told to fail.
class StringSink final : public io::Sink {
 public:
  StringSink(std::string* out, uint64_t capacity = UINT64_MAX) : out_(out), capacity_(capacity) {}
  const std::string& name() const override { return name_; }
  Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) override {
    if (offset + bytes.size() > capacity_) return IoError("full");
    if (out_->size() < offset + bytes.size()) out_->resize(offset + bytes.size(), '\xee');
    std::memcpy(out_->data() + offset, bytes.data(), bytes.size());
    return OkStatus();
  }
  Status Commit() override {
    committed = true;
    return OkStatus();
  }
  bool committed = false;

 private:
  std::string name_ = "sink";
  std::string* out_;
  uint64_t capacity_;
};

inline absl::Span<const uint8_t> Span(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

}  // namespace qinfer::format::testing
