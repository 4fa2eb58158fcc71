// Specifications from configurations: what is understood, in old and new spelling, and what is
// refused, by which key.
#include "model/spec.h"

#include <cmath>

#include "core/half.h"
#include "model_testing.h"

namespace qinfer::model {
namespace {

TEST(LlamaConfig, Defaults) {
  auto spec = SpecOfConfig(LlamaConfig(""));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->layers.size(), 2u);
  const AttentionSpec& a = spec->layers[1].attention;
  EXPECT_EQ(a.head_dim, 16u);
  EXPECT_EQ(a.kv_heads, 2u);
  EXPECT_FLOAT_EQ(a.scale, 0.25f);
  EXPECT_EQ(a.window, 0u);
  EXPECT_FALSE(a.q_bias.present());
  EXPECT_EQ(a.q.name, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_FALSE(spec->tied());
  EXPECT_EQ(spec->ropes[0].theta, 10000.0);
  EXPECT_EQ(spec->ropes[0].dims, 16u);
  EXPECT_FALSE(spec->ropes[0].interleaved);
  EXPECT_EQ(LinearUses(*spec).size(), 2u * 7 + 1);
  EXPECT_EQ(LinearUses(*spec).back().role, LinearRole::kHead);
  EXPECT_EQ(RoleName(LinearRole::kDown), "down");
}

TEST(LlamaConfig, OptionsAreUnderstood) {
  auto spec = SpecOfConfig(LlamaConfig(
      R"("head_dim":24,"attention_bias":true,"mlp_bias":true,"tie_word_embeddings":true,)"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->layers[0].attention.head_dim, 24u);
  EXPECT_TRUE(spec->layers[0].attention.o_bias.present());
  EXPECT_TRUE(spec->layers[0].feed_forward.down_bias.present());
  EXPECT_TRUE(spec->tied());
  EXPECT_EQ(LinearUses(*spec).size(), 2u * 7);
}

TEST(LlamaConfig, RopeInBothSpellings) {
  const std::string scaling =
      R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":256)";
  auto old_style =
      SpecOfConfig(LlamaConfig(StrCat("\"rope_theta\":500000.0,\"rope_scaling\":", scaling, "},")));
  auto new_style = SpecOfConfig(
      LlamaConfig(StrCat("\"rope_parameters\":", scaling, ",\"rope_theta\":500000.0},")));
  ASSERT_TRUE(old_style.ok()) << old_style.status().message();
  ASSERT_TRUE(new_style.ok()) << new_style.status().message();
  EXPECT_EQ(*old_style, *new_style);
  EXPECT_EQ(old_style->ropes[0].scaling, RopeScaling::kLlama3);
  EXPECT_EQ(old_style->ropes[0].theta, 500000.0);
  EXPECT_EQ(old_style->ropes[0].factor, 8.0);
  auto older = SpecOfConfig(LlamaConfig(R"("rope_scaling":{"type":"linear","factor":2},)"));
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->ropes[0].scaling, RopeScaling::kLinear);
  auto yarn = SpecOfConfig(LlamaConfig(
      R"("rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":128},)"));
  ASSERT_TRUE(yarn.ok());
  EXPECT_NEAR(yarn->ropes[0].attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
  auto mscale = SpecOfConfig(LlamaConfig(
      R"("rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0},)"));
  ASSERT_TRUE(mscale.ok());
  EXPECT_NEAR(mscale->ropes[0].attention_factor, 1.0, 1e-12);
}

TEST(LlamaConfig, MistralWindow) {
  std::string config =
      LlamaConfig(R"("architectures":["MistralForCausalLM"],"sliding_window":32,"head_dim":16,)",
                  "architectures");
  auto spec = SpecOfConfig(config);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->layers[0].attention.window, 32u);
  auto none = SpecOfConfig(LlamaConfig(
      R"("architectures":["MistralForCausalLM"],"sliding_window":null,)", "architectures"));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->layers[0].attention.window, 0u);
}

// Every key with values that make no sense: a FormatError that names it.
TEST(LlamaConfig, NonsenseIsNamed) {
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {"hidden_size", {"0", "-1", "1e30", "\"64\"", "64.5", "[]", "true", "4294967296"}},
      {"vocab_size", {"0", "-5", "99999999999", "{}"}},
      {"num_hidden_layers", {"0", "-1", "1e9", "\"x\""}},
      {"intermediate_size", {"0", "-3", "1e18"}},
      {"num_attention_heads", {"0", "-4", "5", "1e12"}},
      {"num_key_value_heads", {"0", "-2", "3.5"}},
      {"max_position_embeddings", {"0", "-1", "1e300"}},
      {"rms_norm_eps", {"0", "-1e-5", "\"a\"", "7"}},
      {"head_dim", {"0", "-16", "1000000"}},
      {"tie_word_embeddings", {"1", "\"no\""}},
      {"attention_bias", {"0", "[]"}},
      {"rope_theta", {"0", "-1", "1e300", "\"x\""}},
      {"rope_scaling",
       {"{\"type\":\"longrope\"}",
        "{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1,1]}",
        "{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
        "\"long_factor\":[1,1,1,1,1,0,1,1]}",
        "{\"type\":\"longrope\",\"short_factor\":\"x\"}", "3", "[]", "{\"type\":\"linear\"}",
        "{\"type\":\"linear\",\"factor\":0}", "{\"type\":\"llama3\",\"factor\":2}"}},
      {"architectures", {"\"LlamaForCausalLM\"", "[1]", "{}"}},
  };
  for (const auto& [key, values] : bad) {
    for (const char* value : values) {
      auto spec = SpecOfConfig(LlamaConfig(StrCat("\"", key, "\":", value, ","), key));
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kDataLoss) << key << " = " << value;
      EXPECT_NE(std::string(spec.status().message()).find(key), std::string::npos)
          << spec.status().message();
    }
  }
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size"}) {
    auto spec = SpecOfConfig(LlamaConfig("", key));
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kDataLoss) << key;
    EXPECT_NE(std::string(spec.status().message()).find(key), std::string::npos);
  }
}

TEST(LlamaConfig, WhatIsNotSupportedSaysSo) {
  const auto unsupported = absl::StatusCode::kUnimplemented;
  auto unknown =
      SpecOfConfig(LlamaConfig(R"("architectures":["FalconForCausalLM"],)", "architectures"));
  EXPECT_EQ(unknown.status().code(), unsupported);
  const std::string message(unknown.status().message());
  EXPECT_NE(message.find("FalconForCausalLM"), std::string::npos);
  EXPECT_NE(message.find("Gemma3ForCausalLM"), std::string::npos);
  EXPECT_EQ(SpecOfConfig(LlamaConfig(R"("hidden_act":"relu",)")).status().code(), unsupported);
  EXPECT_EQ(
      SpecOfConfig(LlamaConfig(R"("rope_scaling":{"type":"mrope","factor":2},)")).status().code(),
      unsupported);
}

std::string GemmaConfig(const std::string& changes) {
  return StrCat(
      R"({"architectures":["Gemma3ForCausalLM"],)", changes,
      R"("hidden_size":640,"num_hidden_layers":12,"num_attention_heads":4,)"
      R"("num_key_value_heads":1,"head_dim":256,"intermediate_size":2048,"vocab_size":1000})");
}

TEST(Gemma3Config, PatternScaleAndRopes) {
  auto spec = SpecOfConfig(
      GemmaConfig(R"("torch_dtype":"bfloat16","sliding_window":512,"query_pre_attn_scalar":144,)"
                  R"("rope_scaling":{"rope_type":"linear","factor":8.0},)"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  for (size_t i = 0; i < 12; ++i) {
    const bool global = i % 6 == 5;
    EXPECT_EQ(spec->layers[i].attention.window, global ? 0u : 512u);
    EXPECT_EQ(spec->layers[i].attention.rope, global ? 0 : 1);
  }
  EXPECT_EQ(spec->ropes[0].theta, 1e6);
  EXPECT_EQ(spec->ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec->ropes[1].theta, 10000.0);
  EXPECT_EQ(spec->ropes[1].scaling, RopeScaling::kNone);
  EXPECT_FLOAT_EQ(spec->layers[0].attention.scale, 1.0f / 12);
  EXPECT_EQ(spec->norm_weight_offset, 1.0f);
  EXPECT_EQ(spec->embedding_scale, Bf16ToFloat(FloatToBf16(std::sqrt(640.0f))));
  EXPECT_TRUE(spec->tied());
  EXPECT_TRUE(spec->layers[3].post_feed_forward_norm.present());
  EXPECT_TRUE(spec->layers[3].attention.q_norm.present());
  auto exact = SpecOfConfig(GemmaConfig(R"("dtype":"float32",)"));
  ASSERT_TRUE(exact.ok());
  EXPECT_EQ(exact->embedding_scale, std::sqrt(640.0f));
}

TEST(Gemma3Config, NestedInTheMultimodalModel) {
  auto spec = SpecOfConfig(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"dtype":"bfloat16","text_config":)"
      R"({"hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,)"
      R"("sliding_window":1024,"rope_scaling":{"factor":8.0,"rope_type":"linear"}}})");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->layers.size(), 34u);
  EXPECT_EQ(spec->layers[0].attention.heads, 8u);
  EXPECT_EQ(spec->layers[0].attention.head_dim, 256u);
  EXPECT_EQ(spec->vocab_size, 262208u);
  auto wrong = SpecOfConfig(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"text_config":{"hidden_size":-1}})");
  EXPECT_NE(std::string(wrong.status().message()).find("text_config.hidden_size"),
            std::string::npos);
}

TEST(Gemma3Config, LayerTypesMustFit) {
  EXPECT_FALSE(SpecOfConfig(GemmaConfig(R"("layer_types":["full_attention"],)")).ok());
  EXPECT_FALSE(SpecOfConfig(GemmaConfig(R"("use_bidirectional_attention":true,)")).ok());
}

// A configuration of another architecture: Llama's keys under its name.
std::string ConfigOf(const std::string& architecture, const std::string& changes) {
  return LlamaConfig(StrCat("\"architectures\":[\"", architecture, "\"],", changes),
                     "architectures");
}

TEST(DenseConfigs, AreUnderstood) {
  auto qwen2 = SpecOfConfig(
      ConfigOf("Qwen2ForCausalLM",
               R"("use_sliding_window":true,"sliding_window":9,"max_window_layers":1,)"));
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().message();
  EXPECT_EQ(qwen2->layers[0].attention.window, 0u);
  EXPECT_EQ(qwen2->layers[1].attention.window, 9u);
  EXPECT_EQ(qwen2->layers[1].attention.v_bias.name, "model.layers.1.self_attn.v_proj.bias");
  EXPECT_FALSE(qwen2->layers[1].attention.o_bias.present());
  auto off = SpecOfConfig(ConfigOf("Qwen2ForCausalLM", R"("sliding_window":9,)"));
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(off->layers[1].attention.window, 0u);

  auto qwen3 = SpecOfConfig(ConfigOf("Qwen3ForCausalLM", ""));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().message();
  EXPECT_EQ(qwen3->layers[0].attention.head_dim, 128u);
  EXPECT_TRUE(qwen3->layers[0].attention.q_norm.present());
  EXPECT_FALSE(qwen3->layers[0].attention.wide_norms);

  auto gemma2 = SpecOfConfig(ConfigOf("Gemma2ForCausalLM", R"("head_dim":16,)"));
  ASSERT_TRUE(gemma2.ok()) << gemma2.status().message();
  EXPECT_EQ(gemma2->logit_softcap, 30.0f);
  EXPECT_EQ(gemma2->layers[0].attention.softcap, 50.0f);
  EXPECT_EQ(gemma2->layers[0].attention.window, 4096u);
  EXPECT_EQ(gemma2->layers[1].attention.window, 0u);
  EXPECT_TRUE(gemma2->tied());
  EXPECT_EQ(gemma2->layers[0].feed_forward.activation, kernels::Activation::kGeluTanh);
  auto capless = SpecOfConfig(ConfigOf("Gemma2ForCausalLM", R"("attn_logit_softcapping":null,)"));
  ASSERT_TRUE(capless.ok());
  EXPECT_EQ(capless->layers[0].attention.softcap, 0.0f);

  auto smollm3 = SpecOfConfig(ConfigOf("SmolLM3ForCausalLM", R"("no_rope_layers":[0,1,1],)"));
  ASSERT_TRUE(smollm3.ok()) << smollm3.status().message();
  EXPECT_EQ(smollm3->layers[0].attention.rope, -1);
  EXPECT_EQ(smollm3->layers[1].attention.rope, 0);
  EXPECT_EQ(smollm3->ropes[0].theta, 2e6);

  auto olmo2 = SpecOfConfig(ConfigOf("Olmo2ForCausalLM", ""));
  ASSERT_TRUE(olmo2.ok()) << olmo2.status().message();
  EXPECT_FALSE(olmo2->layers[0].attention_norm.present());
  EXPECT_TRUE(olmo2->layers[0].attention.wide_norms);
}

TEST(DenseConfigs, PhiFusesAndSwitches) {
  const std::string factors = "[1,1,1,1,1,2]";
  const std::string scaling = StrCat(R"("partial_rotary_factor":0.75,"rope_scaling":{"type":"su",)",
                                     "\"short_factor\":", factors, ",\"long_factor\":", factors,
                                     "},\"original_max_position_embeddings\":128,");
  auto phi = SpecOfConfig(ConfigOf("Phi3ForCausalLM", scaling));
  ASSERT_TRUE(phi.ok()) << phi.status().message();
  const RopeSpec& rope = phi->ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(rope.dims, 12u);
  EXPECT_EQ(rope.original_context, 128u);
  EXPECT_NEAR(rope.attention_factor, std::sqrt(1.0 + std::log(4.0) / std::log(128.0)), 1e-12);
  const AttentionSpec& a = phi->layers[1].attention;
  EXPECT_EQ(a.k, (TensorRef{"model.layers.1.self_attn.qkv_proj.weight", 64, 32}));
  EXPECT_EQ(a.v, (TensorRef{"model.layers.1.self_attn.qkv_proj.weight", 96, 32}));
  EXPECT_EQ(phi->layers[1].feed_forward.up,
            (TensorRef{"model.layers.1.mlp.gate_up_proj.weight", 96, 96}));
  EXPECT_EQ(RopeVariant(*phi, 128), 0u);
  EXPECT_EQ(RopeVariant(*phi, 129), 1u);
  Memory memory;
  auto again = SpecFromJson(SpecToJson(*phi), &memory);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *phi);
}

TEST(DenseConfigs, NonsenseIsNamed) {
  struct Bad {
    const char* architecture;
    const char* key;
    std::vector<const char*> values;
  };
  const Bad bad[] = {
      {"Qwen2ForCausalLM", "use_sliding_window", {"1", "\"x\""}},
      {"Qwen2ForCausalLM", "max_window_layers", {"-1", "1e9", "{}"}},
      {"Qwen2ForCausalLM", "layer_types", {"[\"full_attention\"]", "[1,2]", "3"}},
      {"Qwen3ForCausalLM", "attention_bias", {"0", "[]"}},
      {"Gemma2ForCausalLM", "attn_logit_softcapping", {"0", "-5", "\"x\""}},
      {"Gemma2ForCausalLM", "final_logit_softcapping", {"0", "1e30"}},
      {"Gemma2ForCausalLM", "query_pre_attn_scalar", {"0", "-1", "[]"}},
      {"Gemma2ForCausalLM", "sliding_window", {"0", "-1", "1e30"}},
      {"SmolLM3ForCausalLM", "no_rope_layers", {"[1]", "[\"x\",1]", "{}", "7"}},
      {"SmolLM3ForCausalLM", "no_rope_layer_interval", {"0", "-4"}},
      {"Phi3ForCausalLM", "partial_rotary_factor", {"0", "2", "\"x\"", "1e-9"}},
      {"Phi3ForCausalLM", "original_max_position_embeddings", {"0", "-1", "[]"}},
      {"Olmo2ForCausalLM", "tie_word_embeddings", {"0", "\"x\""}},
  };
  for (const Bad& b : bad) {
    for (const char* value : b.values) {
      // The original context is read where there is something to scale.
      const std::string more =
          std::string(b.key).find("original") == 0
              ? R"("rope_scaling":{"type":"longrope","short_factor":[],"long_factor":[]},)"
              : "";
      auto spec =
          SpecOfConfig(ConfigOf(b.architecture, StrCat(more, "\"", b.key, "\":", value, ",")));
      EXPECT_FALSE(spec.ok()) << b.architecture << " " << b.key << " = " << value;
      EXPECT_NE(std::string(spec.status().message()).find(b.key), std::string::npos)
          << spec.status().message();
    }
  }
}

TEST(SpecJson, RoundTrip) {
  for (const std::string& config :
       {LlamaConfig(R"("rope_scaling":{"type":"yarn","factor":4.1},"rope_theta":123456.789,)"),
        GemmaConfig(
            R"("rope_scaling":{"rope_type":"linear","factor":8.0},"rms_norm_eps":1e-6,)")}) {
    auto spec = SpecOfConfig(config);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    spec->layers[0].attention.k = {"fused", 32, 16};
    spec->layers[1].attention.sinks = {"sinks"};
    Memory memory;
    auto again = SpecFromJson(SpecToJson(*spec), &memory);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, *spec);
    EXPECT_EQ(SpecToJson(*again), SpecToJson(*spec));
  }
}

TEST(SpecJson, MistakesAreNamed) {
  auto spec = SpecOfConfig(LlamaConfig(""));
  ASSERT_TRUE(spec.ok());
  Memory memory;
  const std::string good = SpecToJson(*spec);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return SpecFromJson(text.replace(at, from.size(), to), &memory).status();
  };
  const auto bad = absl::StatusCode::kDataLoss;
  EXPECT_EQ(replaced("\"hidden_size\":64", "\"hidden_size\":\"x\"").code(), bad);
  EXPECT_EQ(replaced("\"hidden_size\":64", "\"hidden_size\":0").code(), bad);
  EXPECT_EQ(replaced("\"hidden_size\":64", "\"hidden_size\":99999999999").code(), bad);
  EXPECT_EQ(replaced("\"hidden_size\":64", "\"hidden_sise\":64").code(), bad);
  EXPECT_EQ(replaced("\"kv_heads\":2", "\"kv_heads\":3").code(), bad);
  EXPECT_EQ(replaced("\"rope\":0", "\"rope\":7").code(), bad);
  EXPECT_NE(std::string(replaced("\"head_dim\"", "\"head_dimm\"").message()).find("head_dimm"),
            std::string::npos);
  EXPECT_EQ(SpecFromJson("", &memory).status().code(), bad);
  EXPECT_EQ(SpecFromJson("[]", &memory).status().code(), bad);
}

}  // namespace
}  // namespace qinfer::model
