// Fuzzes the compiled form: any bytes are refused or are safe to use. Nothing else is checked here.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/memory.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using qinfer::tokenizer::Tokenizer;
  qinfer::Memory memory({}, 256u << 20);
  try {
    auto copy = qinfer::Buffer::Create(&memory, size + 1, "a copy");  // aligned
    if (!copy.ok()) return 0;
    std::memcpy(copy->data(), data, size);
    const auto tokenizer = Tokenizer::FromCompiled({copy->as<uint8_t>(), size}, "fuzz", &memory);
    if (!tokenizer.ok()) return 0;
    std::pmr::vector<int32_t> ids(&memory);
    for (const bool special : {true, false}) {
      const auto status =
          (*tokenizer)->Encode("Hello w\xc3\xb6rld  12 <s>\n\xe4\xbd\xa0", {true, special}, &ids);
      if (!status.ok()) return 0;
    }
    std::string text;
    if ((*tokenizer)->Decode(ids, true, &text).ok())
      for (int32_t id = 0; id < 64; ++id) (*tokenizer)->AppendToken(id, id == 0, false, &text);
  } catch (const std::bad_alloc&) {
    // The limit of this run's memory.
  }
  return 0;
}
