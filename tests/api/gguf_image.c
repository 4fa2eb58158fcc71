/* See gguf_image.h. */
#include "gguf_image.h"

#include <stdint.h>

static void put(memory_file* file, const void* bytes, size_t size) {
  if (file->size + size > file->room) {
    file->room = (file->size + size) * 2;
    file->bytes = realloc(file->bytes, file->room);
  }
  memcpy(file->bytes + file->size, bytes, size);
  file->size += size;
}
static void put_u32(memory_file* file, uint32_t value) { put(file, &value, 4); }
static void put_u64(memory_file* file, uint64_t value) { put(file, &value, 8); }
static void put_text(memory_file* file, const char* text, size_t size) {
  put_u64(file, size);
  put(file, text, size);
}
static void key(memory_file* file, const char* name, uint32_t type) {
  put_text(file, name, strlen(name));
  put_u32(file, type);
}
static void key_u32(memory_file* file, const char* name, uint32_t value) {
  key(file, name, 4);
  put_u32(file, value);
}
static void key_f32(memory_file* file, const char* name, float value) {
  key(file, name, 6);
  put(file, &value, 4);
}
static void key_text(memory_file* file, const char* name, const char* value) {
  key(file, name, 8);
  put_text(file, value, strlen(value));
}

/* GGUF's name of a Hugging Face tensor; empty where there is none. */
static void rename_tensor(const char* from, size_t size, char* to, size_t room) {
  static const char* const parts[][2] = {
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
  };
  char name[128];
  snprintf(name, sizeof(name), "%.*s", (int)size, from);
  to[0] = '\0';
  if (strcmp(name, "model.embed_tokens.weight") == 0) snprintf(to, room, "token_embd.weight");
  if (strcmp(name, "model.norm.weight") == 0) snprintf(to, room, "output_norm.weight");
  int layer = 0;
  int used = 0;
  if (sscanf(name, "model.layers.%d.%n", &layer, &used) != 1 || used == 0) return;
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
    if (strncmp(name + used, parts[i][0], strlen(parts[i][0])) == 0) {
      snprintf(to, room, "blk.%d.%s.weight", layer, parts[i][1]);
    }
  }
}

static void put_vocabulary(memory_file* file, const qinfer_model* model, uint32_t count,
                           int merges) {
  key_text(file, "tokenizer.ggml.model", "gpt2");
  key_text(file, "tokenizer.ggml.pre", "gpt-2");
  key_u32(file, "tokenizer.ggml.bos_token_id", 0);
  key_u32(file, "tokenizer.ggml.eos_token_id", 1);
  qinfer_str text;
  int32_t special = 0;
  key(file, "tokenizer.ggml.tokens", 9);
  put_u32(file, 8);
  put_u64(file, count);
  for (uint32_t id = 0; id < count; ++id) {
    qinfer_tokenizer_token(model, (int32_t)id, &text, NULL, NULL);
    put_text(file, text.data, text.size);
  }
  key(file, "tokenizer.ggml.token_type", 9);
  put_u32(file, 5);
  put_u64(file, count);
  for (uint32_t id = 0; id < count; ++id) {
    qinfer_tokenizer_token(model, (int32_t)id, &text, &special, NULL);
    put_u32(file, special ? 3 : 1);
  }
  if (!merges) return;
  /* A merge for every token that is two other tokens side by side: not the trained ones, but valid.
   */
  key(file, "tokenizer.ggml.merges", 9);
  put_u32(file, 8);
  const size_t count_at = file->size;
  uint64_t found = 0;
  put_u64(file, 0);
  for (uint32_t id = 0; id < count; ++id) {
    qinfer_tokenizer_token(model, (int32_t)id, &text, &special, NULL);
    for (size_t cut = text.size; !special && cut-- > 1;) {
      int32_t left = -1;
      int32_t right = -1;
      if (((unsigned char)text.data[cut] & 0xc0) == 0x80) continue;
      qinfer_tokenizer_find(model, text.data, cut, &left, NULL);
      qinfer_tokenizer_find(model, text.data + cut, text.size - cut, &right, NULL);
      if (left < 0 || right < 0) continue;
      put_u64(file, text.size + 1);
      put(file, text.data, cut);
      put(file, " ", 1);
      put(file, text.data + cut, text.size - cut);
      ++found;
      break;
    }
  }
  memcpy(file->bytes + count_at, &found, 8);
}

memory_file gguf_image(const qinfer_model* model, const memory_file* checkpoint, int merges,
                       size_t* header_bytes) {
  memory_file file = {0};
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  qinfer_model_info_get(model, &info, NULL);
  put(&file, "GGUF", 4);
  put_u32(&file, 3);
  put_u64(&file, info.tensor_count);
  put_u64(&file, merges ? 16 : 15);
  key_text(&file, "general.architecture", "llama");
  key_u32(&file, "llama.context_length", info.max_context);
  key_u32(&file, "llama.embedding_length", info.hidden_size);
  key_u32(&file, "llama.block_count", info.layers);
  key_u32(&file, "llama.feed_forward_length", info.intermediate_size);
  key_u32(&file, "llama.attention.head_count", info.heads);
  key_u32(&file, "llama.attention.head_count_kv", info.kv_heads);
  key_f32(&file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  key_f32(&file, "llama.rope.freq_base", 10000.0f);
  put_vocabulary(&file, model, info.vocab_size, merges);

  uint64_t offset = 0;
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    char name[64];
    qinfer_model_tensor(model, i, &tensor, NULL);
    rename_tensor(tensor.name.data, tensor.name.size, name, sizeof(name));
    put_text(&file, name, strlen(name));
    put_u32(&file, tensor.rank);
    for (uint32_t d = tensor.rank; d-- > 0;) put_u64(&file, tensor.shape[d]);
    put_u32(&file, 1); /* F16 */
    put_u64(&file, offset);
    offset += (tensor.bytes + 31) / 32 * 32;
  }
  *header_bytes = file.size;
  static const unsigned char zeros[32] = {0};
  put(&file, zeros, (32 - file.size % 32) % 32);
  for (uint32_t i = 0; i < info.tensor_count; ++i) {
    qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
    qinfer_model_tensor(model, i, &tensor, NULL);
    put(&file, checkpoint->bytes + tensor.offset, (size_t)tensor.bytes);
    put(&file, zeros, (size_t)((32 - tensor.bytes % 32) % 32));
  }
  return file;
}
