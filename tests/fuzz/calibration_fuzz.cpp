// Any bytes as a calibration file of a small model: a status, or a calibration that says its
// ranges, merges, and is written back as the very file that was read. The first byte of an input
// chooses between a whole file and a body in short form, to which the target adds the header with
// the right checksum, so that what lies behind the checksum is reached as well.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "quant/bytes.h"
#include "quant/calibration_data.h"
#include "quant/fingerprint.h"
#include "tests/fuzz/config_checkpoint.h"

namespace {

constexpr char kConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
        "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_hidden_layers": 1, "vocab_size": 40, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true})";
constexpr uint32_t kMaxContext = 64;

void CheckAt(bool good, int line) {
  if (good) return;
  std::fprintf(stderr, "%s:%d: does not hold\n", __FILE__, line);
  std::abort();
}
#define Check(good) CheckAt(good, __LINE__)

// Short form: (number of literal bytes, the bytes, number of zeros in eights) again and again. A
// histogram of 16 KiB is then a few bytes of input.
std::string Expand(std::string_view shorter) {
  constexpr size_t kLimit = 1u << 18;
  std::string body;
  for (size_t at = 0; at < shorter.size() && body.size() < kLimit;) {
    const size_t literals = static_cast<uint8_t>(shorter[at++]);
    body += shorter.substr(at, literals);
    at += literals;
    if (at + 1 >= shorter.size()) break;
    const size_t zeros = static_cast<uint8_t>(shorter[at]) | static_cast<uint8_t>(shorter[at + 1])
                                                                 << 8;
    body.append(zeros * 8, '\0');
    at += 2;
  }
  return body;
}

std::string WithHeader(const std::string& body) {
  qinfer::quant::ByteWriter out;
  out.PutBytes("QINFCAL\n", 8);
  out.Put(uint32_t{1});
  out.Put(uint32_t{0});
  out.Put(uint64_t{body.size()});
  out.Put(qinfer::quant::HashText(body));
  out.PutBytes(body.data(), body.size());
  return out.Take();
}

void Use(qinfer::quant::Calibration* calibration, const qinfer::quant::Calibration& other) {
  for (int round = 0; round < 2; ++round) {
    for (const qinfer::quant::InputStats& stats : calibration->data().stats()) {
      const qinfer::quant::Range range = calibration->data().InputRange(stats);
      Check(std::isfinite(range.min) && std::isfinite(range.max));
      float importance[32];
      Check(stats.moments.channels() <= 32);
      stats.moments.Importance(importance);
      for (uint32_t i = 0; i < stats.moments.channels(); ++i) Check(importance[i] > 0.0f);
    }
    (void)calibration->data().Describe();
    if (round == 0) Check(calibration->Merge(other).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace qinfer;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = data[0] == 'F' ? std::string(rest) : WithHeader(Expand(rest));
  Memory memory;
  {
    SerialExecutor executor;
    const exec::Context context = {&memory, &executor, kernels::SelectTable(kernels::Isa::kRef)};
    const auto checkpoint = std::make_shared<fuzz::ConfigCheckpoint>(kConfig);
    auto loaded = quant::LoadCalibration(file, "fuzz", checkpoint, context);
    if (loaded.ok()) {
      // Samples longer than the model's context are read as samples of its context, and so written.
      const std::string written = quant::CalibrationBytes((*loaded)->data());
      Check(written == file || (*loaded)->data().options().sample_tokens == kMaxContext);
      const auto again = quant::LoadCalibration(written, "fuzz", checkpoint, context);
      Check(again.ok() && quant::CalibrationBytes((*again)->data()) == written);
      Use(loaded->get(), **again);
    } else {
      Check(!loaded.status().message().empty());
    }
  }
  Check(memory.used_bytes() == 0 && memory.peak_bytes() < (8u << 20));
  return 0;
}
