// Any bytes as a .qinfer file: a status or a valid file, whose tensors can all be read and
// verified.
#include <cstdlib>

#include "format/qinfer_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qinfer;
  Memory memory;
  {
    const auto source = io::BorrowMemory({data, size}, "fuzz");
    const auto opened = format::QinferFile::Open(source, &memory);
    if (opened.ok()) {
      const format::QinferFile& file = **opened;
      for (const auto group : {file.tensors(), file.side_tensors()}) {
        for (const format::QinferTensor& tensor : group) {
          if (file.Find(tensor.name) != &tensor || tensor.offset % 64 != 0) std::abort();
          const auto bytes = file.Load(tensor, &memory);
          if (!bytes.ok() || bytes->span().size() != tensor.bytes) std::abort();
        }
      }
      (void)file.VerifyAll().ok();
    }
  }
  if (memory.used_bytes() != 0 || memory.peak_bytes() > 2 * size + (64u << 20)) std::abort();
  return 0;
}
