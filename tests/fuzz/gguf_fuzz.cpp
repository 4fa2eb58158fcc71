// Any bytes as a GGUF file: a status or a valid file, every value of which can be asked for.
#include <cstdlib>

#include "format/gguf.h"
#include "format/gguf_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qinfer;
  Memory memory;
  {
    const auto source = io::BorrowMemory({data, size}, "fuzz");
    const auto opened = format::Gguf::Open({source}, &memory);
    if (opened.ok()) {
      const format::Gguf& gguf = **opened;
      for (const std::string_view key : gguf.keys()) {
        const format::GgufValue* value = gguf.Find(key);
        if (value == nullptr) std::abort();
        (void)value->AsUint().ok();
        (void)value->AsInt().ok();
        (void)value->AsFloat().ok();
        (void)value->AsBool().ok();
        (void)value->AsString().ok();
        auto strings = format::GgufStrings::Of(*value);
        std::string_view text;
        for (uint64_t i = 0; strings.ok() && i < strings->count(); ++i) {
          if (!strings->Next(&text).ok()) std::abort();
        }
        if (value->count > 0) {
          (void)value->IntAt(value->count - 1).ok();
          (void)value->FloatAt(value->count - 1).ok();
        }
      }
      for (const format::TensorInfo& tensor : gguf.tensors()) {
        uint8_t last = 0;
        if (!source->ReadAt(tensor.offset + tensor.bytes - 1, {&last, 1}).ok()) std::abort();
      }
      // What is copied out must read back.
      std::pmr::vector<uint8_t> copy(&memory);
      const std::string_view all[] = {""};
      const format::GgufMetadata metadata = format::SelectGgufMetadata(gguf, all);
      copy.assign(metadata.head.begin(), metadata.head.end());
      for (const auto piece : metadata.records) copy.insert(copy.end(), piece.begin(), piece.end());
      const auto again = format::Gguf::Open({io::BorrowMemory(copy, "copy")}, &memory);
      const bool is_part = gguf.Find("split.count") != nullptr;
      if (!again.ok() && !is_part) std::abort();
    }
  }
  if (memory.used_bytes() != 0) std::abort();
  return 0;
}
