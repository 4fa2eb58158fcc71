// A Memory of its own for one user of another: everything is passed on, and so counted twice. For
// plans that measure by running the code that will allocate.
#pragma once

#include "core/memory.h"

namespace qinfer {

// The hooks of such a Memory; `memory` outlives it.
inline AllocatorHooks AccountOf(Memory* memory) {
  return {memory,
          [](void* user, size_t size, size_t align) {
            return static_cast<Memory*>(user)->Allocate(size, align);
          },
          [](void* user, void* ptr, size_t size, size_t align) {
            static_cast<Memory*>(user)->Release(ptr, size, align);
          }};
}

}  // namespace qinfer
