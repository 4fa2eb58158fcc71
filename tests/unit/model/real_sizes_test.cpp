// Configurations of released models: the tensors that their specifications name hold as many
// parameters as the models have.
#include "model/tensor_uses.h"
#include "model_testing.h"

namespace qinfer::model {
namespace {

uint64_t Parameters(const ModelSpec& spec) {
  uint64_t sum = 0;
  const auto add = [&](const TensorUse& use) { sum += uint64_t{use.rows} * use.cols; };
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
};

TEST(RealSizes, SpecificationsNameEveryParameter) {
  for (const Released& released : kReleased) {
    auto spec = SpecOfConfig(released.config);
    ASSERT_TRUE(spec.ok()) << released.name << ": " << spec.status().message();
    EXPECT_EQ(Parameters(*spec), released.parameters) << released.name;
  }
}

}  // namespace
}  // namespace qinfer::model
