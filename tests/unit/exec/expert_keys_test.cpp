// Every key of config.json and of GGUF metadata that says something about experts or latent
// attention is read: with another value, or without it, a model is refused or no longer agrees with
// the recorded logits.
#include <gtest/gtest.h>

#include "golden_testing.h"

namespace qinfer::exec {
namespace {

// Loads and runs a checkpoint as an engine would; the distance from what was recorded, or infinity
// where it is refused, which is as good a sign that a key was read.
double Distance(const format::Checkpoint& checkpoint, const Context& context,
                const std::vector<int32_t>& tokens, const std::vector<float>& expected) {
  const auto spec = model::SpecFromCheckpoint(checkpoint);
  if (!spec.ok() || !model::ValidateTensors(*spec, checkpoint).ok()) return INFINITY;
  const auto logits = LogitsBySpec(*spec, checkpoint, context, tokens);
  if (!logits.ok()) return INFINITY;
  return logits->size() == expected.size() ? MaxDifference(*logits, expected) : INFINITY;
}

// The configuration with the value of a key replaced; a key that it lacks is added.
std::string WithKey(const std::string& config, const std::string& key, const std::string& value) {
  const std::string quoted = "\"" + key + "\":";
  std::string out = config;
  const size_t at = out.find(quoted);
  if (at == std::string::npos) {
    return out.insert(out.find('{') + 1, StrCat(quoted, " ", value, ","));
  }
  const size_t begin = at + quoted.size();
  const size_t close = out.find(']', begin);
  const bool list = out[begin + 1] == '[';
  const size_t end = list ? close + 1 : out.find_first_of(",\n", begin);
  return out.replace(begin, end - begin, " " + value);
}

struct Keys {
  const char* folder;
  const char* variant;
  std::vector<std::pair<const char*, const char*>> other;
};

TEST(ExpertKeys, EveryKeyOfAConfigurationIsRead) {
  const Keys models[] = {
      {"deepseek-v3-small",
       "",
       {{"n_routed_experts", "6"},
        {"num_experts_per_tok", "2"},
        {"n_shared_experts", "1"},
        {"moe_intermediate_size", "16"},
        {"first_k_dense_replace", "0"},
        {"moe_layer_freq", "2"},
        {"n_group", "2"},
        {"topk_group", "3"},
        {"norm_topk_prob", "false"},
        {"routed_scaling_factor", "1.0"},
        {"scoring_func", "\"softmax\""},
        {"topk_method", "\"greedy\""},
        {"kv_lora_rank", "20"},
        {"q_lora_rank", "null"},
        {"qk_nope_head_dim", "10"},
        {"qk_rope_head_dim", "6"},
        {"v_head_dim", "8"},
        {"rope_interleave", "false"},
        {"mscale_all_dim", "0.2"},
        {"mscale", "0.3"},
        {"factor", "2.0"},
        {"rope_theta", "10000.0"},
        {"original_max_position_embeddings", "48"},
        {"beta_slow", "0.1"},
        {"beta_fast", "0.3"},
        {"rope_type", "\"default\""},
        {"attention_bias", "true"},
        {"num_hidden_layers", "2"},
        {"num_attention_heads", "2"},
        {"hidden_act", "\"gelu_pytorch_tanh\""},
        {"rms_norm_eps", "0.1"},
        {"intermediate_size", "48"},
        {"tie_word_embeddings", "true"}}},
      {"deepseek-v2-small",
       "",
       {{"n_routed_experts", "4"},
        {"num_experts_per_tok", "1"},
        {"n_shared_experts", "2"},
        {"n_group", "2"},
        {"topk_group", "2"},
        {"norm_topk_prob", "true"},
        {"routed_scaling_factor", "1.0"},
        {"scoring_func", "\"sigmoid\""},
        {"topk_method", "\"greedy\""},
        {"q_lora_rank", "20"},
        {"first_k_dense_replace", "2"},
        {"moe_layer_freq", "2"},
        {"qk_nope_head_dim", "12"},
        {"rope_theta", "10000.0"}}},
      {"mixtral-small",
       "",
       {{"num_local_experts", "4"},
        {"num_experts_per_tok", "3"},
        {"intermediate_size", "20"},
        {"head_dim", "12"},
        {"num_key_value_heads", "3"},
        {"rope_theta", "10000.0"},
        {"sliding_window", "13"},
        {"hidden_act", "\"gelu_pytorch_tanh\""}}},
      {"qwen2-moe-small",
       "",
       {{"num_experts", "6"},
        {"num_experts_per_tok", "2"},
        {"moe_intermediate_size", "16"},
        {"shared_expert_intermediate_size", "20"},
        {"norm_topk_prob", "true"},
        {"decoder_sparse_step", "2"},
        {"mlp_only_layers", "[]"},
        {"qkv_bias", "false"},
        {"intermediate_size", "56"},
        {"rope_theta", "10000.0"}}},
      {"qwen3-moe-small",
       "",
       {{"num_experts_per_tok", "2"},
        {"moe_intermediate_size", "16"},
        {"norm_topk_prob", "false"},
        {"decoder_sparse_step", "2"},
        {"mlp_only_layers", "[1]"},
        {"attention_bias", "true"},
        {"head_dim", "12"},
        {"rope_theta", "10000.0"},
        {"tie_word_embeddings", "false"}}},
      {"glm4-moe-small",
       "",
       {{"n_routed_experts", "6"},
        {"num_experts_per_tok", "2"},
        {"n_shared_experts", "2"},
        {"moe_intermediate_size", "16"},
        {"first_k_dense_replace", "0"},
        {"n_group", "1"},
        {"topk_group", "2"},
        {"norm_topk_prob", "false"},
        {"routed_scaling_factor", "1.0"},
        {"use_qk_norm", "false"},
        {"attention_bias", "false"},
        {"partial_rotary_factor", "1.0"},
        {"head_dim", "14"},
        {"rope_theta", "10000.0"}}},
  };
  for (const Keys& model : models) {
    const std::string folder = Golden(std::string("models/") + model.folder + "/");
    const std::string config = ReadText(folder + "config.json");
    const Recorded recorded(folder + "expected.safetensors");
    const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
    const std::vector<float> expected = recorded.Read<float>("logits");
    const auto distance = [&](const std::string& text) {
      Machine machine;
      format::SideFiles side;
      side.config_json = format::Document::Copy(text, &machine.memory, "a configuration").value();
      format::OpenOptions options;
      options.memory = &machine.memory;
      auto source = io::OpenFile(folder + "model.safetensors", io::Access::kCopy, &machine.memory);
      auto checkpoint = format::OpenCheckpoint(source.value(), side, options);
      return checkpoint.ok() ? Distance(**checkpoint, machine.context, tokens, expected) : INFINITY;
    };
    EXPECT_LT(distance(config), 1e-3) << model.folder;
    for (const auto& [key, value] : model.other) {
      const std::string changed = WithKey(config, key, value);
      ASSERT_NE(changed, config) << key;
      EXPECT_GT(distance(changed), 1e-2) << model.folder << ": " << key << " = " << value;
    }
  }
}

// The same for GGUF files: keys and tensors that are not found under their names.
struct Renamed {
  const char* file;
  const char* logits;
  std::vector<const char*> names;
};

TEST(ExpertKeys, EveryKeyOfGgufIsRead) {
  const Renamed files[] = {
      {"models/deepseek-v3-small/model-f16.gguf",
       "logits.gguf",
       {"deepseek2.attention.q_lora_rank",
        "deepseek2.attention.kv_lora_rank",
        "deepseek2.attention.key_length_mla",
        "deepseek2.attention.value_length_mla",
        "deepseek2.rope.dimension_count",
        "deepseek2.rope.freq_base",
        "deepseek2.rope.scaling.type",
        "deepseek2.rope.scaling.factor",
        "deepseek2.rope.scaling.original_context_length",
        "deepseek2.rope.scaling.yarn_log_multiplier",
        "deepseek2.expert_count",
        "deepseek2.expert_used_count",
        "deepseek2.expert_feed_forward_length",
        "deepseek2.expert_shared_count",
        "deepseek2.expert_gating_func",
        "deepseek2.expert_group_count",
        "deepseek2.expert_group_used_count",
        "deepseek2.expert_weights_norm",
        "deepseek2.expert_weights_scale",
        "blk.1.exp_probs_b.bias",
        "blk.1.ffn_gate_inp.weight",
        "blk.2.attn_k_b.weight"}},
      {"models/glm4-moe-small/model-f16.gguf",
       "logits",
       {"glm4moe.rope.dimension_count", "glm4moe.rope.freq_base", "glm4moe.expert_count",
        "glm4moe.expert_used_count", "glm4moe.expert_feed_forward_length",
        "glm4moe.expert_shared_count", "glm4moe.expert_group_count",
        "glm4moe.expert_group_used_count", "glm4moe.expert_weights_norm",
        "glm4moe.expert_weights_scale", "blk.1.exp_probs_b.bias", "blk.0.attn_q_norm.weight",
        "blk.1.attn_k_norm.weight", "blk.1.attn_v.bias", "blk.1.post_attention_norm.weight"}},
      {"models/qwen2-moe-small/model-f16.gguf",
       "logits",
       {"qwen2moe.expert_count", "qwen2moe.expert_used_count",
        "qwen2moe.expert_shared_feed_forward_length", "blk.0.ffn_gate_inp_shexp.weight",
        "blk.0.attn_q.bias", "blk.2.ffn_gate_inp.weight"}},
      {"models/qwen3-moe-small/model-f16.gguf",
       "logits",
       {"qwen3moe.expert_used_count", "blk.0.attn_q_norm.weight", "qwen3moe.rope.freq_base"}},
      {"models/mixtral-small/model-f16.gguf",
       "logits",
       {"llama.expert_count", "llama.expert_used_count", "llama.rope.freq_base",
        "blk.0.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight"}},
      {"models/mixtral-small/model-old.gguf",
       "logits",
       {"llama.expert_count", "blk.1.ffn_down.3.weight"}},
      {"gguf-models/glm4moe-nextn.gguf", "logits", {"glm4moe.nextn_predict_layers"}},
      {"gguf-models/deepseek2-lite.gguf", "logits", {"blk.3.ffn_gate_up_exps.weight"}},
  };
  for (const Renamed& file : files) {
    const std::string path = Golden(file.file);
    const bool alone = path.find("gguf-models") != std::string::npos;
    const Recorded recorded(alone ? path.substr(0, path.rfind('.')) + ".safetensors"
                                  : path.substr(0, path.rfind('/')) + "/expected.safetensors");
    const std::vector<int32_t> tokens = recorded.Read<int32_t>("tokens");
    const std::vector<float> expected = recorded.Read<float>(file.logits);
    const auto distance = [&](const std::string& bytes) {
      Machine machine;
      format::OpenOptions options;
      options.memory = &machine.memory;
      auto checkpoint = format::OpenCheckpoint(
          io::BorrowMemory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "model"),
          {}, options);
      return checkpoint.ok() ? Distance(**checkpoint, machine.context, tokens, expected) : INFINITY;
    };
    const std::string good = ReadText(path);
    EXPECT_LT(distance(good), 1e-3) << file.file;
    for (const std::string name : file.names) {
      std::string bytes = good;
      const size_t at = bytes.find(name);
      ASSERT_NE(at, std::string::npos) << name;
      bytes[at + name.size() - 1] = '_';
      EXPECT_GT(distance(bytes), 1e-2) << file.file << ": " << name;
    }
  }
}

}  // namespace
}  // namespace qinfer::exec
