// The expanded form of latent attention (Determinism::kFast): as near to transformers as the
// absorbed form, near to that with every type of cache and weights, the same on all threads and
// instruction sets, and taken only where it should be.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "golden_testing.h"
#include "kernels/layout.h"

namespace qinfer::exec {
namespace {

using kernels::KvType;

std::vector<int32_t> Prompt(uint32_t vocab, uint32_t count) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((7919 + i * i * 31 + i * 17) % vocab);
  }
  return tokens;
}

RunOptions Fast(std::vector<uint32_t> chunks = {}, uint32_t expand_from = 16) {
  RunOptions run;
  run.chunks = std::move(chunks);
  run.determinism = Determinism::kFast;
  run.expand_from = expand_from;
  return run;
}

// A model whose k_b and v_b are packed in another format.
class Packed final : public Model {
 public:
  Packed(std::shared_ptr<const Model> source, const std::string& format)
      : source_(std::move(source)) {
    const weights::Format to = *weights::ParseFormat(format);
    for (uint32_t l = 0; l < source_->spec().layers.size(); ++l) {
      LayerWeights layer = source_->layer(l);
      for (Linear& linear : layer.attention.k_b) Pack(to, &linear);
      for (Linear& linear : layer.attention.v_b) Pack(to, &linear);
      layers_.push_back(std::move(layer));
    }
  }
  const model::ModelSpec& spec() const override { return source_->spec(); }
  const LayerWeights& layer(uint32_t index) const override { return layers_[index]; }
  const EndWeights& ends() const override { return source_->ends(); }
  const tokenizer::Tokenizer* tokenizer() const override { return source_->tokenizer(); }
  const tokenizer::ChatTemplate* chat_template() const override { return nullptr; }
  const std::string& chat_template_error() const override { return none_; }
  const model::GenerationDefaults& generation_defaults() const override {
    return source_->generation_defaults();
  }
  const format::Checkpoint& checkpoint() const override { return source_->checkpoint(); }
  uint64_t weight_bytes() const override { return source_->weight_bytes(); }

  // Makes the first scale of the first head's k_b not a number.
  void Spoil() {
    const float bad = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(data_[0].data(), &bad, sizeof(bad));
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  void Pack(const weights::Format& to, Linear* linear) {
    const kernels::Matrix& m = linear->matrix;
    std::vector<float> rows(size_t{m.rows} * m.cols);
    for (uint32_t r = 0; r < m.rows; ++r) {
      kernels::SelectTable(kernels::Isa::kRef)->decode_row(m, r, &rows[size_t{r} * m.cols]);
    }
    uint64_t panel_bytes = 0, bytes = 0;
    ASSERT_TRUE(weights::PackedSize(to, m.rows, m.cols, &panel_bytes, &bytes));
    std::vector<Line>& lines = data_.emplace_back(bytes / sizeof(Line));
    const absl::Span<uint8_t> out(lines[0].bytes, bytes);
    ASSERT_TRUE(
        weights::PackRows(to, weights::PackOptions(), rows.data(), 0, m.rows, m.cols, out).ok());
    linear->format = to;
    linear->matrix = *weights::View(to, m.rows, m.cols, out, "packed");
    linear->activation_block = 32;
  }

  std::shared_ptr<const Model> source_;
  std::vector<LayerWeights> layers_;
  std::vector<std::vector<Line>> data_;
  std::string none_;
};

struct Case {
  const char* folder;
  const char* variant;
  const char* weights;
};

TEST(Expanded, EqualsTransformers) {
  double most = 0.0;
  for (const Case& c : {Case{"deepseek-v3-small", "", "model.safetensors"},
                        Case{"deepseek-v3-small", "rope", "model.safetensors"},
                        Case{"deepseek-v3-small", "halves", "model.safetensors"},
                        Case{"deepseek-v3-small", "mscale", "model.safetensors"},
                        Case{"deepseek-v3-small", "gguf", "model-f16.gguf"},
                        Case{"deepseek-v3-biases", "", "model.safetensors"},
                        Case{"deepseek-v2-small", "", "model.safetensors"},
                        Case{"deepseek-v2-small", "", "model-f16.gguf"}}) {
    SCOPED_TRACE(StrCat(c.folder, " ", c.variant, " ", c.weights));
    const std::string folder = Golden(std::string("models/") + c.folder + "/");
    Machine machine;
    auto checkpoint = OpenGolden(folder, c.variant, c.weights, &machine);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto model = Load(*checkpoint, machine.context);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Recorded recorded(folder + "expected.safetensors");
    const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
    const std::vector<float> expected =
        recorded.Read<float>(*c.variant == '\0' ? "logits" : StrCat("logits.", c.variant));
    auto strict = LogitsOf(*model, machine.context, tokens);
    ASSERT_TRUE(strict.ok());
    // Whole; cut inside a page; and forms that take turns.
    for (const std::vector<uint32_t>& chunks :
         {std::vector<uint32_t>{}, std::vector<uint32_t>{21, 24},
          std::vector<uint32_t>{7, 19, 1, 18}}) {
      auto logits = LogitsOf(*model, machine.context, tokens, Fast(chunks));
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      most = std::max(most, MaxDifference(*logits, expected));
      EXPECT_NE(*logits, *strict);
    }
  }
  EXPECT_LT(most, 3e-4);  // as for the absorbed form
  RecordProperty("most", std::to_string(most));
}

// Root of the mean square, over all logits.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// What INT8 inputs, keys and values, weights of INT8 values, or halves of these, round away is much
// the same in both forms; with floats alone little but the order of sums differs. (Logits of the
// trained model are 5.05 in the root of the mean square, those of the random one 2.70, and its
// routers often nearly draw.)
TEST(Expanded, IsNearTheAbsorbedForm) {
  struct Near {
    const char* format;
    KvType kv;
    Activations activations;
    double trained, random;  // bounds
  };
  for (const bool trained : {true, false}) {
    Machine machine;
    const std::string path =
        trained ? "/samples/models/tiny-deepseek" : "/tests/golden/models/deepseek-v3-small";
    auto loaded = LoadPath(QINFER_SOURCE_DIR + path, &machine);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const std::vector<int32_t> tokens = Prompt((*loaded)->spec().vocab_size, 90);
    for (const Near& c : {Near{"f32", KvType::kF32, Activations::kFloat, 1e-5, 1e-5},
                          Near{"f32", KvType::kF16, Activations::kAuto, 1e-3, 1e-2},
                          Near{"f32", KvType::kInt8, Activations::kAuto, 0.08, 0.3},
                          Near{"int8-g32-f16", KvType::kF32, Activations::kFloat, 1e-5, 1e-5},
                          Near{"int8-g32-f16", KvType::kF32, Activations::kAuto, 0.05, 0.35},
                          Near{"int8-g32-f16", KvType::kInt8, Activations::kAuto, 0.08, 0.3},
                          Near{"int4-g32-f16", KvType::kF16, Activations::kAuto, 0.05, 0.35},
                          Near{"int4-g32-f16-min", KvType::kInt8, Activations::kAuto, 0.08, 0.3}}) {
      SCOPED_TRACE(StrCat(path, " ", c.format, " cache ", static_cast<int>(c.kv), " activations ",
                          static_cast<int>(c.activations)));
      const auto model = std::make_shared<Packed>(*loaded, c.format);
      RunOptions run;
      run.kv = c.kv;
      run.activations = c.activations;
      auto strict = LogitsOf(model, machine.context, tokens, run);
      RunOptions run_fast = Fast({37, 20, 33});
      run_fast.kv = c.kv;
      run_fast.activations = c.activations;
      auto fast = LogitsOf(model, machine.context, tokens, run_fast);
      ASSERT_TRUE(strict.ok() && fast.ok());
      EXPECT_LT(Distance(*fast, *strict), trained ? c.trained : c.random);
      EXPECT_GT(Distance(*fast, *strict), 0.0);
    }
  }
}

TEST(Expanded, ThreadsBudgetsAndInstructionSetsChangeNothing) {
  for (const char* format : {"f32", "int4-g32-f16"}) {
    for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
      std::vector<float> expected;
      const auto compare = [&](uint32_t threads, kernels::Isa isa, uint64_t budget) {
        Machine machine(threads, isa);
        auto loaded = LoadPath(Golden("models/deepseek-v3-small"), &machine);
        ASSERT_TRUE(loaded.ok());
        RunOptions run = Fast({70, 17});
        run.kv = kv;
        run.activations = Activations::kAuto;
        run.unit_budget = budget;
        auto logits = LogitsOf(std::make_shared<Packed>(*loaded, format), machine.context,
                               Prompt((*loaded)->spec().vocab_size, 87), run);
        ASSERT_TRUE(logits.ok()) << logits.status().message();
        if (expected.empty()) expected = *logits;
        EXPECT_EQ(*logits, expected) << threads << " " << static_cast<int>(isa) << " " << budget;
      };
      compare(1, kernels::Isa::kRef, Deadline::kNever);
      for (const uint32_t threads : {1u, 2u, 3u, 8u}) {
        compare(threads, kernels::Isa::kAuto, Deadline::kNever);
        compare(threads, kernels::Isa::kAuto, 0);
      }
      for (const kernels::Isa isa : {kernels::Isa::kAvx2, kernels::Isa::kAvxVnni,
                                     kernels::Isa::kAvx512, kernels::Isa::kNeon}) {
        if (Runs(isa)) compare(2, isa, Deadline::kNever);
      }
    }
  }
}

// A batch of one segment of 64 tokens and more, where that pays.
TEST(Expanded, IsTakenForLongSegmentsAlone) {
  Machine machine;
  auto model = LoadPath(Golden("models/deepseek-v3-small"), &machine);
  ASSERT_TRUE(model.ok());
  const std::vector<int32_t> tokens = Prompt((*model)->spec().vocab_size, 96);
  const auto expands = [&](std::vector<uint32_t> chunks) {
    auto fast = LogitsOf(*model, machine.context, tokens, Fast(chunks, 0));
    RunOptions run = Fast(std::move(chunks), 0);
    run.determinism = Determinism::kStrict;
    auto strict = LogitsOf(*model, machine.context, tokens, run);
    EXPECT_TRUE(fast.ok() && strict.ok());
    return *fast != *strict;
  };
  EXPECT_TRUE(expands({}));
  EXPECT_TRUE(expands({64, 1}));
  EXPECT_FALSE(expands({63, 33}));
  EXPECT_FALSE(expands({1}));
  // Little is saved where heads are as wide as latents, and these have to be made first.
  auto wide = LoadPath(std::string(QINFER_SOURCE_DIR) + "/samples/models/tiny-deepseek", &machine);
  ASSERT_TRUE(wide.ok());
  auto fast = LogitsOf(*wide, machine.context, tokens, Fast({}, 0));
  auto strict = LogitsOf(*wide, machine.context, tokens);
  ASSERT_TRUE(fast.ok() && strict.ok());
  EXPECT_EQ(*fast, *strict);
}

TEST(Expanded, CompanyKeepsTheAbsorbedForm) {
  Machine machine(2);
  auto model = LoadPath(Golden("models/deepseek-v3-small"), &machine);
  ASSERT_TRUE(model.ok());
  const std::vector<int32_t> tokens = Prompt((*model)->spec().vocab_size, 80);
  kv::CacheOptions cache_options;
  cache_options.k_type = cache_options.v_type = KvType::kF32;
  cache_options.max_tokens = 200;
  cache_options.max_sequences = 2;
  auto cache = kv::Cache::Create(CacheLayout((*model)->spec(), KvType::kF32, KvType::kF32),
                                 cache_options, &machine.memory);
  ASSERT_TRUE(cache.ok());
  ForwardOptions options;
  options.max_batch_tokens = options.max_logit_rows = 96;
  options.activations = Activations::kFloat;
  options.determinism = Determinism::kFast;
  auto forward = Forward::Create(*model, machine.context, options);
  ASSERT_TRUE(forward.ok());
  std::unique_ptr<kv::Sequence> sequences[] = {*(*cache)->NewSequence(), *(*cache)->NewSequence()};
  BatchSegment segments[2];
  for (int s = 0; s < 2; ++s) {
    const uint32_t count = s == 0 ? 80 : 3;
    ASSERT_TRUE(sequences[s]->Reserve(count).ok());
    segments[s].sequence = sequences[s].get();
    segments[s].tokens = absl::MakeConstSpan(tokens.data(), count);
    if (s == 0) segments[s].logits_from = 0;
  }
  ASSERT_TRUE((*forward)->Begin(segments).ok());
  ASSERT_TRUE((*forward)->Run(Deadline()).ok());
  std::vector<float> logits;
  for (uint32_t r = 0; r < 80; ++r) {
    const absl::Span<const float> row = (*forward)->Logits(r);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  EXPECT_EQ(logits, *LogitsOf(*model, machine.context, tokens));
}

TEST(Expanded, WeightsThatAreNoNumbersAreFound) {
  Machine machine;
  auto loaded = LoadPath(Golden("models/deepseek-v3-small"), &machine);
  ASSERT_TRUE(loaded.ok());
  const std::vector<int32_t> tokens = Prompt((*loaded)->spec().vocab_size, 80);
  const auto model = std::make_shared<Packed>(*loaded, "int8-g32-f32");
  RunOptions run = Fast();
  run.activations = Activations::kAuto;
  EXPECT_TRUE(LogitsOf(model, machine.context, tokens, run).ok());
  model->Spoil();
  EXPECT_FALSE(LogitsOf(model, machine.context, tokens, run).ok());
}

TEST(Expanded, PlanIsWhatCreateTakes) {
  Machine machine(2);
  auto model = LoadPath(Golden("models/deepseek-v3-small"), &machine);
  ASSERT_TRUE(model.ok());
  for (const uint32_t batch : {1u, 64u, 512u}) {
    for (const uint32_t context : {0u, 5u, 100000u}) {
      ForwardOptions options;
      options.max_batch_tokens = batch;
      options.max_position = context;
      options.determinism = Determinism::kFast;
      const uint64_t before = machine.memory.used_bytes();
      const uint64_t plan = Forward::PlanBytes((*model)->spec(), options, machine.context);
      auto forward = Forward::Create(*model, machine.context, options);
      ASSERT_TRUE(forward.ok());
      EXPECT_EQ(machine.memory.used_bytes() - before, plan);
      ForwardOptions strict = options;
      strict.determinism = Determinism::kStrict;
      if (context == 100000) {
        EXPECT_GT(plan, Forward::PlanBytes((*model)->spec(), strict, machine.context));
      }
      Machine small(2, kernels::Isa::kAuto, {}, plan - 1);
      EXPECT_EQ(Forward::Create(*model, small.context, options).status().code(),
                absl::StatusCode::kOutOfRange);
    }
  }
}

}  // namespace
}  // namespace qinfer::exec
