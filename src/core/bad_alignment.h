// What Memory throws where the host's allocator has returned a block that is not aligned as asked;
// such a block goes back to it. Apart from core/memory.h, since few need it.
#pragma once

#include <new>

namespace qinfer {

class BadAlignment : public std::bad_alloc {
 public:
  static constexpr const char* kMessage =
      "the host's allocator has returned a block that is not aligned as asked: its alloc must obey "
      "the argument align";
  const char* what() const noexcept override { return kMessage; }
};

}  // namespace qinfer
