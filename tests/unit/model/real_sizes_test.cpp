// Configurations of released models: the tensors that their specifications name hold as many
// parameters as the models have.
#include "model/tensor_uses.h"
#include "model_testing.h"

namespace qinfer::model {
namespace {

uint64_t Parameters(const ModelSpec& spec) {
  uint64_t sum = 0;
  const auto add = [&](const TensorUse& use) { sum += uint64_t{use.rows} * use.cols * use.parts; };
  ForEachEndTensor(spec, add);
  for (const LayerSpec& layer : spec.layers) ForEachLayerTensor(spec, layer, add);
  return sum;
}

struct Released {
  const char* name;
  const char* config;
  uint64_t parameters;
};

const Released kReleased[] = {
    {"Llama-3.2-1B",
     R"({"architectures":["LlamaForCausalLM"],"hidden_size":2048,"intermediate_size":8192,)"
     R"("num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,)"
     R"("vocab_size":128256,"tie_word_embeddings":true,"max_position_embeddings":131072,)"
     R"("rope_theta":500000.0,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,)"
     R"("low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}})",
     1235814400},
    {"Mistral-7B-v0.1",
     R"({"architectures":["MistralForCausalLM"],"hidden_size":4096,"intermediate_size":14336,)"
     R"("num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,)"
     R"("vocab_size":32000,"sliding_window":4096,"max_position_embeddings":32768})",
     7241732096},
    {"Mistral-Nemo-12B",
     R"({"architectures":["MistralForCausalLM"],"hidden_size":5120,"intermediate_size":14336,)"
     R"("num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,)"
     R"("vocab_size":131072,"sliding_window":null,"max_position_embeddings":131072})",
     12247782400},
    {"Qwen2.5-0.5B",
     R"({"architectures":["Qwen2ForCausalLM"],"hidden_size":896,"intermediate_size":4864,)"
     R"("num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,)"
     R"("vocab_size":151936,"tie_word_embeddings":true,"use_sliding_window":false,)"
     R"("max_window_layers":24,"sliding_window":32768,"rope_theta":1000000.0})",
     494032768},
    {"Qwen3-0.6B",
     R"({"architectures":["Qwen3ForCausalLM"],"hidden_size":1024,"intermediate_size":3072,)"
     R"("num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,)"
     R"("vocab_size":151936,"tie_word_embeddings":true,"rope_theta":1000000})",
     596049920},
    {"Gemma-2-2B",
     R"({"architectures":["Gemma2ForCausalLM"],"hidden_size":2304,"intermediate_size":9216,)"
     R"("num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,)"
     R"("vocab_size":256000,"torch_dtype":"bfloat16"})",
     2614341888},
    {"Phi-3-mini-4k",
     R"({"architectures":["Phi3ForCausalLM"],"hidden_size":3072,"intermediate_size":8192,)"
     R"("num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,)"
     R"("vocab_size":32064,"sliding_window":2047,"original_max_position_embeddings":4096})",
     3821079552},
    {"Phi-4-mini",
     R"({"architectures":["Phi3ForCausalLM"],"hidden_size":3072,"intermediate_size":8192,)"
     R"("num_hidden_layers":32,"num_attention_heads":24,"num_key_value_heads":8,)"
     R"("vocab_size":200064,"tie_word_embeddings":true,"partial_rotary_factor":0.75})",
     3836021760},
    {"SmolLM3-3B",
     R"({"architectures":["SmolLM3ForCausalLM"],"hidden_size":2048,"intermediate_size":11008,)"
     R"("num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":4,)"
     R"("vocab_size":128256,"rope_theta":5000000.0})",
     3075098624},
    {"OLMo-2-1B",
     R"({"architectures":["Olmo2ForCausalLM"],"hidden_size":2048,"intermediate_size":8192,)"
     R"("num_hidden_layers":16,"num_attention_heads":16,"num_key_value_heads":16,)"
     R"("vocab_size":100352,"max_position_embeddings":4096,"rope_theta":500000})",
     1484916736},
    {"Mixtral-8x7B",
     R"({"architectures":["MixtralForCausalLM"],"hidden_size":4096,"intermediate_size":14336,)"
     R"("num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,)"
     R"("num_local_experts":8,"num_experts_per_tok":2,"vocab_size":32000,)"
     R"("tie_word_embeddings":false,"sliding_window":null,"rope_theta":1000000.0})",
     46702792704},
    {"Qwen1.5-MoE-A2.7B",
     R"({"architectures":["Qwen2MoeForCausalLM"],"hidden_size":2048,"intermediate_size":5632,)"
     R"("moe_intermediate_size":1408,"shared_expert_intermediate_size":5632,"num_experts":60,)"
     R"("num_experts_per_tok":4,"norm_topk_prob":false,"decoder_sparse_step":1,)"
     R"("num_hidden_layers":24,"num_attention_heads":16,"num_key_value_heads":16,)"
     R"("vocab_size":151936,"tie_word_embeddings":false,"use_sliding_window":false})",
     14315784192},
    {"Qwen3-30B-A3B",
     R"({"architectures":["Qwen3MoeForCausalLM"],"hidden_size":2048,"intermediate_size":6144,)"
     R"("moe_intermediate_size":768,"num_experts":128,"num_experts_per_tok":8,"head_dim":128,)"
     R"("norm_topk_prob":true,"num_hidden_layers":48,"num_attention_heads":32,)"
     R"("num_key_value_heads":4,"vocab_size":151936,"tie_word_embeddings":false})",
     30532122624},
    {"DeepSeek-V2-Lite",
     R"({"architectures":["DeepseekV2ForCausalLM"],"hidden_size":2048,"intermediate_size":10944,)"
     R"("moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,)"
     R"("num_experts_per_tok":6,"first_k_dense_replace":1,"num_hidden_layers":27,)"
     R"("num_attention_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_nope_head_dim":128,)"
     R"("qk_rope_head_dim":64,"v_head_dim":128,"vocab_size":102400,"topk_method":"greedy",)"
     R"("tie_word_embeddings":false})",
     15706484224},
    {"gpt-oss-20b",
     R"({"architectures":["GptOssForCausalLM"],"hidden_size":2880,"intermediate_size":2880,)"
     R"("num_hidden_layers":24,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,)"
     R"("vocab_size":201088,"num_local_experts":32,"num_experts_per_tok":4,"sliding_window":128,)"
     R"("experts_per_token":4,"initial_context_length":4096,"swiglu_limit":7.0,)"
     R"("quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]},)"
     R"("rope_theta":150000,"rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,)"
     R"("original_max_position_embeddings":4096,"rope_type":"yarn","truncate":false}})",
     20914757184},
};

TEST(RealSizes, SpecificationsNameEveryParameter) {
  for (const Released& released : kReleased) {
    auto spec = SpecOfConfig(released.config);
    ASSERT_TRUE(spec.ok()) << released.name << ": " << spec.status().message();
    EXPECT_EQ(Parameters(*spec), released.parameters) << released.name;
  }
}

// Kimi K2 calls itself so in "model_type" only: it is a DeepSeek V3 of other sizes.
TEST(RealSizes, KimiK2IsADeepseek) {
  std::ifstream file(std::string(QINFER_SOURCE_DIR) + "/tests/golden/configs/kimi-k2.json");
  ASSERT_TRUE(file.is_open());
  const std::string config((std::istreambuf_iterator<char>(file)), {});
  auto spec = SpecOfConfig(config);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(Parameters(*spec), 1026408232448u);
  ASSERT_EQ(spec->layers.size(), 61u);
  EXPECT_TRUE(spec->skipped_prefixes.empty());
  EXPECT_EQ(spec->layers[0].feed_forward.kind, FeedForwardKind::kDense);
  const FeedForwardSpec& f = spec->layers[1].feed_forward;
  EXPECT_EQ(f.experts, 384u);
  EXPECT_EQ(f.experts_used, 8u);
  EXPECT_EQ(f.groups, 0u);
  EXPECT_EQ(f.scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(f.normalize && f.router_correction.present());
  EXPECT_FLOAT_EQ(f.routed_scale, 2.827f);
  EXPECT_EQ(f.intermediate, 2048u);
  const AttentionSpec& a = spec->layers[1].attention;
  EXPECT_EQ(a.heads, 64u);
  EXPECT_EQ(a.latent_dim + a.rope_dim, 576u);
  // (0.1 ln 32 + 1)^2 / sqrt(192)
  EXPECT_NEAR(a.scale, 0.130860, 1e-5);
  EXPECT_EQ(spec->ropes[0].factor, 32.0);
  EXPECT_EQ(spec->ropes[0].beta_fast, 1.0);
  EXPECT_EQ(spec->ropes[0].attention_factor, 1.0);
}

}  // namespace
}  // namespace qinfer::model
