// gpt-oss: what its configuration means where it says little, and mistakes by their names.
#include "model_testing.h"

namespace qinfer::model {
namespace {

std::string GptOssConfig(const std::string& changes, const std::string& without = "") {
  std::string config =
      LlamaConfig(StrCat(changes, without == "num_local_experts" ? "" : "\"num_local_experts\":6,",
                         "\"num_experts_per_tok\":2,"),
                  without);
  const std::string llama = "LlamaForCausalLM";
  return config.replace(config.find(llama), llama.size(), "GptOssForCausalLM");
}

TEST(GptOssConfig, Defaults) {
  auto spec = SpecOfConfig(GptOssConfig("\"sliding_window\":24,"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  ASSERT_EQ(spec->layers.size(), 2u);
  EXPECT_EQ(spec->layers[0].attention.window, 24u);
  EXPECT_EQ(spec->layers[1].attention.window, 0u);
  const AttentionSpec& a = spec->layers[1].attention;
  EXPECT_EQ(a.head_dim, 64u);
  EXPECT_FLOAT_EQ(a.scale, 0.125f);
  EXPECT_EQ(a.sinks.name, "model.layers.1.self_attn.sinks");
  EXPECT_TRUE(a.q_bias.present() && a.k_bias.present() && a.v_bias.present() && a.o_bias.present());
  const RopeSpec& rope = spec->ropes[0];
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.theta, 150000.0);
  EXPECT_EQ(rope.factor, 32.0);
  EXPECT_FALSE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 1.3465735902799727, 1e-12);
  const FeedForwardSpec& f = spec->layers[0].feed_forward;
  EXPECT_EQ(f.experts, 6u);
  EXPECT_EQ(f.experts_used, 2u);
  EXPECT_EQ(f.expert_intermediate, 96u);
  EXPECT_EQ(f.intermediate, 0u);
  EXPECT_EQ(f.scoring, RouterScoring::kSoftmaxChosen);
  EXPECT_FLOAT_EQ(f.swiglu_limit, 7.0f);
  EXPECT_FLOAT_EQ(f.swiglu_alpha, 1.702f);
  EXPECT_NE(f.expert_gate, f.expert_up);
  Memory memory;
  auto again = SpecFromJson(SpecToJson(*spec), &memory);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *spec);
}

TEST(GptOssConfig, OptionsAreUnderstood) {
  auto spec = SpecOfConfig(
      GptOssConfig(R"("layer_types":["full_attention","sliding_attention"],"sliding_window":8,)"
                   R"("attention_bias":false,"head_dim":20,"swiglu_limit":3.5,"swiglu_alpha":1.25,)"
                   R"("tie_word_embeddings":true,"rope_theta":1000.0,"rope_scaling":null,)"
                   R"("quantization_config":{"quant_method":"mxfp4"},)"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->layers[0].attention.window, 0u);
  EXPECT_EQ(spec->layers[1].attention.window, 8u);
  EXPECT_FALSE(spec->layers[0].attention.q_bias.present());
  EXPECT_FALSE(spec->layers[0].attention.o_bias.present());
  EXPECT_EQ(spec->layers[0].attention.head_dim, 20u);
  EXPECT_FLOAT_EQ(spec->layers[0].feed_forward.swiglu_limit, 3.5f);
  EXPECT_FLOAT_EQ(spec->layers[0].feed_forward.swiglu_alpha, 1.25f);
  EXPECT_TRUE(spec->tied());
  // Without tensors, the configuration says that the experts are quantized.
  EXPECT_EQ(spec->layers[1].feed_forward.expert_up.name,
            "model.layers.1.mlp.experts.gate_up_proj_blocks");
  EXPECT_EQ(spec->layers[1].feed_forward.expert_up.row_begin, 1u);
  EXPECT_FALSE(spec->layers[1].feed_forward.expert_down.transposed);
  auto full = SpecOfConfig(GptOssConfig("\"sliding_window\":null,"));
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_EQ(full->layers[0].attention.window, 0u);
}

TEST(GptOssConfig, MistakesAreNamed) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"sliding_window", "0"},
      {"sliding_window", "\"x\""},
      {"swiglu_limit", "0"},
      {"swiglu_limit", "-7"},
      {"swiglu_alpha", "[]"},
      {"layer_types", "[\"full_attention\"]"},
      {"layer_types", "[\"full_attention\",\"chunked_attention\"]"},
      {"hidden_act", "\"gelu_pytorch_tanh\""},
      {"quant_method", "0,\"quantization_config\":{\"quant_method\":\"gptq\"}"},
      {"quantization_config", "[]"},
      {"rope_scaling", "{\"rope_type\":\"yarn\"}"},
  };
  for (const auto& [key, value] : mistakes) {
    auto spec = SpecOfConfig(GptOssConfig(StrCat("\"", key, "\":", value, ",")));
    ASSERT_FALSE(spec.ok()) << key << " = " << value;
    EXPECT_NE(std::string(spec.status().message()).find(key), std::string::npos)
        << spec.status().message();
  }
  for (const char* count : {"0", "9999999", "-1"}) {
    auto spec = SpecOfConfig(
        GptOssConfig(StrCat("\"num_local_experts\":", count, ","), "num_local_experts"));
    ASSERT_FALSE(spec.ok());
    EXPECT_NE(std::string(spec.status().message()).find("num_local_experts"), std::string::npos)
        << spec.status().message();
  }
}

}  // namespace
}  // namespace qinfer::model
