// Any bytes as a safetensors file, and as a shard index: a status or a valid table, in bounded
// memory.
#include <cstdlib>

#include "format/checkpoint.h"
#include "format/hf_folder.h"
#include "format/memory_guard.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qinfer;
  Memory memory;
  {
    const auto source = io::BorrowMemory({data, size}, "fuzz");
    format::OpenOptions options;
    options.memory = &memory;
    const auto opened = format::OpenCheckpoint(source, {}, options);
    if (opened.ok()) {
      for (const format::TensorInfo& tensor : (*opened)->tensors()) {
        uint8_t first = 0;
        if (tensor.bytes > 0 && !(*opened)->Read(tensor, tensor.bytes - 1, {&first, 1}).ok()) {
          std::abort();  // a validated tensor lies inside the file
        }
        if ((*opened)->Find(tensor.name) != &tensor) std::abort();
      }
    }
    (void)format::CatchNoMemory("fuzz", &memory, [&]() -> Status {
      return format::ParseShardIndex(*source, &memory).status();
    });
  }
  if (memory.used_bytes() != 0 || memory.peak_bytes() > size + (64u << 20)) std::abort();
  return 0;
}
