// The engine along llama.cpp's greedy continuations on a downloaded model (tests/fetch_models.sh);
// the golden is made by tests/golden/make_forced.py. Skipped without the model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "core/half.h"
#include "engine/engine.h"
#include "tests/unit/engine/test_model.h"

namespace qinfer::engine {
namespace {

using qinfer::testing::CachedModelPath;
using qinfer::testing::LoadTestModel;

const char kSmolLm2[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

// One prompt of forced_smollm2.bin.
struct Forced {
  static constexpr size_t kTop = 128;
  struct Position {
    float margin;
    uint16_t ids[kTop];
    uint16_t logprobs[kTop];  // F16
  };
  std::vector<int32_t> prompt, continuation;
  std::vector<Position> positions;
};

std::vector<Forced> ReadForced() {
  std::ifstream file(QINFER_SOURCE_DIR "/tests/golden/forced_smollm2.bin", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<Forced> all;
  size_t at = 0;
  const auto take = [&](void* to, size_t n) {
    if (n > bytes.size() - at) return false;
    std::memcpy(to, bytes.data() + at, n);
    at += n;
    return true;
  };
  uint32_t lengths[2];
  while (take(lengths, sizeof(lengths))) {
    Forced f;
    f.prompt.resize(lengths[0]);
    f.continuation.resize(lengths[1]);
    f.positions.resize(lengths[1]);
    if (!take(f.prompt.data(), 4 * f.prompt.size())) break;
    if (!take(f.continuation.data(), 4 * f.continuation.size())) break;
    if (!take(f.positions.data(), sizeof(Forced::Position) * f.positions.size())) break;
    all.push_back(std::move(f));
  }
  return all;
}

// KL of what the golden keeps: its best tokens one by one, and the rest as one event. That is a
// lower bound of the KL of all tokens.
double CoarseKl(const Forced::Position& position, absl::Span<const float> logits) {
  double max = logits[0], sum = 0.0;
  for (const float x : logits) max = std::max(max, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  const double log_sum = max + std::log(sum);
  double kl = 0.0, rest = 1.0, own_rest = 1.0;
  for (size_t i = 0; i < Forced::kTop; ++i) {
    const double log_p = HalfToFloat(position.logprobs[i]);
    const double log_q = static_cast<double>(logits[position.ids[i]]) - log_sum;
    kl += std::exp(log_p) * (log_p - log_q);
    rest -= std::exp(log_p);
    own_rest -= std::exp(log_q);
  }
  if (rest > 1e-6 && own_rest > 1e-9) kl += rest * std::log(rest / own_rest);
  return kl;
}

TEST(Forced, SmolLm2FollowsLlamaCppsContinuations) {
  if (!std::ifstream(CachedModelPath(kSmolLm2)).good())
    GTEST_SKIP() << kSmolLm2 << " is not in ~/.cache/qinfer";
  const auto forced = ReadForced();
  ASSERT_EQ(forced.size(), 10u);
  const auto test = LoadTestModel(CachedModelPath(kSmolLm2));
  ASSERT_NE(test->model, nullptr) << test->status.ToString();
  EngineOptions options;
  options.k_type = options.v_type = kernels::KvType::kF16;
  auto engine = Engine::Create(test->model, test->context, options);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  double kl = 0.0;
  uint32_t positions = 0, close = 0, wrong = 0;
  for (const Forced& f : forced) {
    const auto session = *(*engine)->NewSession();
    ASSERT_TRUE(session->Append(f.prompt).ok());
    for (size_t i = 0; i < f.positions.size(); ++i) {
      auto prefill = *session->Prefill();
      ASSERT_TRUE(*prefill->Step(Deadline()));
      const auto logits = *session->LastLogits();
      const uint32_t best = test->context.kernels->argmax(logits.data(), logits.size());
      if (static_cast<int32_t>(best) != f.continuation[i]) {
        const bool excused = f.positions[i].margin < 0.3f;
        ++(excused ? close : wrong);
        EXPECT_TRUE(excused) << "position " << i << " after " << f.prompt.size()
                             << " tokens: margin " << f.positions[i].margin;
      }
      kl += CoarseKl(f.positions[i], logits);
      ++positions;
      ASSERT_TRUE(session->Append({f.continuation[i]}).ok());
    }
  }
  std::printf(
      "SmolLM2 along llama.cpp: %u positions, %u other tops at close calls, %u at others, "
      "mean KL of the best 128 and the rest %.6f\n",
      positions, close, wrong, kl / positions);
  EXPECT_EQ(positions, 640u);
  EXPECT_LE(kl / positions, 0.003);
}

}  // namespace
}  // namespace qinfer::engine
