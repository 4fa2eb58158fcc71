// What all handles have in common: a type mark, a count of owners, and whether the handle is
// poisoned. A handle struct begins with a HandleHeader and owns its state by shared_ptr, so that
// parents may be released before children. The handle types themselves are defined beside their
// functions.
#pragma once

#include <atomic>
#include <cstdint>

#include "qinfer/runtime.h"

namespace qinfer::api {

struct HandleHeader {
  explicit HandleHeader(uint32_t mark) : magic(mark) {}
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> owners{1};
  mutable std::atomic<bool> poisoned{false};
};

// The type mark of each handle struct; random, so that other memory is unlikely to look like one.
template <typename H>
struct HandleTraits;
template <>
struct HandleTraits<qinfer_runtime> {
  static constexpr uint32_t kMagic = 0x9d1b41a1;
};
template <>
struct HandleTraits<qinfer_model> {
  static constexpr uint32_t kMagic = 0xa35c72e3;
};
template <>
struct HandleTraits<qinfer_calibration> {
  static constexpr uint32_t kMagic = 0xb7f01295;
};
template <>
struct HandleTraits<qinfer_engine> {
  static constexpr uint32_t kMagic = 0xc14e98d7;
};
template <>
struct HandleTraits<qinfer_session> {
  static constexpr uint32_t kMagic = 0xd8270cb9;
};
template <>
struct HandleTraits<qinfer_task> {
  static constexpr uint32_t kMagic = 0xe6539f0b;
};
template <>
struct HandleTraits<qinfer_report> {
  static constexpr uint32_t kMagic = 0xf20ad64d;
};

// Null, type and poison; allocates nothing. `argument` is the parameter's name, for the message.
qinfer_status CheckHeader(qinfer_error* err, const HandleHeader* header, uint32_t magic,
                          const char* argument) noexcept;

template <typename H>
qinfer_status CheckHandle(qinfer_error* err, const H* handle, const char* argument,
                          const HandleHeader** header) noexcept {
  // The header is the first member of every handle struct, also of one of another type.
  *header = reinterpret_cast<const HandleHeader*>(handle);
  return CheckHeader(err, *header, HandleTraits<H>::kMagic, argument);
}

// One more owner. Null and handles of another type are left alone.
template <typename H>
H* RetainHandle(H* handle) noexcept {
  if (handle == nullptr || handle->header.magic.load() != HandleTraits<H>::kMagic) return handle;
  handle->header.owners.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

// True when this was the last owner: the caller then deletes the handle.
template <typename H>
bool DropOwner(H* handle) noexcept {
  if (handle == nullptr || handle->header.magic.load() != HandleTraits<H>::kMagic) return false;
  if (handle->header.owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  handle->header.magic.store(0);
  return true;
}

}  // namespace qinfer::api
