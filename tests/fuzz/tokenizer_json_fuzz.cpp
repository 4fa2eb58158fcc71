// Fuzzes the reader of tokenizer.json: any bytes give a tokenizer or an error; a tokenizer encodes
// and decodes. Nothing else is checked here.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/memory.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using qinfer::tokenizer::Tokenizer;
  qinfer::Memory memory({}, 256u << 20);
  try {
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto tokenizer = Tokenizer::FromJson(json, {}, "fuzz", &memory);
    if (!tokenizer.ok()) return 0;
    std::pmr::vector<int32_t> ids(&memory);
    const auto status =
        (*tokenizer)->Encode("Hello w\xc3\xb6rld  12 <s>\n\xe4\xbd\xa0", {true, true}, &ids);
    std::string text;
    if (status.ok() && (*tokenizer)->Decode(ids, false, &text).ok())
      (*tokenizer)->AppendToken(0, true, false, &text);
  } catch (const std::bad_alloc&) {
    // The limit of this run's memory.
  }
  return 0;
}
