// ModelSpec as JSON and back, for .qinfer files: one list of fields serves both directions. Fields
// with their default value are left out; an unknown field is an error, since it would change what
// the model computes.
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "format/json_stream.h"
#include "model/config_reader.h"
#include "model/spec.h"
#include "model/spec_source.h"

namespace qinfer::model {
namespace {

using Json = format::JsonNode;

// ---- The fields. `f(name, value)` for each.

template <typename F>
void Fields(TensorRef& x, F& f) {
  f("name", x.name);
  f("row_begin", x.row_begin);
  f("rows", x.rows);
  f("parts", x.parts);
  f("stride", x.stride);
  f("step", x.step);
  f("transposed", x.transposed);
  f("column", x.column);
  f("column_step", x.column_step);
}

template <typename F>
void Fields(RopeSpec& x, F& f) {
  f("dims", x.dims);
  f("interleaved", x.interleaved);
  f("theta", x.theta);
  f("scaling", x.scaling);
  f("factor", x.factor);
  f("low_freq_factor", x.low_freq_factor);
  f("high_freq_factor", x.high_freq_factor);
  f("beta_fast", x.beta_fast);
  f("beta_slow", x.beta_slow);
  f("truncate", x.truncate);
  f("attention_factor", x.attention_factor);
  f("original_context", x.original_context);
  f("short_factors", x.short_factors);
  f("long_factors", x.long_factors);
  f("frequency_factors", x.frequency_factors);
}

template <typename F>
void Fields(AttentionSpec& x, F& f) {
  f("kind", x.kind);
  f("heads", x.heads);
  f("kv_heads", x.kv_heads);
  f("head_dim", x.head_dim);
  f("v_head_dim", x.v_head_dim);
  f("scale", x.scale);
  f("softcap", x.softcap);
  f("window", x.window);
  f("rope", x.rope);
  f("q", x.q);
  f("k", x.k);
  f("v", x.v);
  f("o", x.o);
  f("q_bias", x.q_bias);
  f("k_bias", x.k_bias);
  f("v_bias", x.v_bias);
  f("o_bias", x.o_bias);
  f("q_norm", x.q_norm);
  f("k_norm", x.k_norm);
  f("wide_norms", x.wide_norms);
  f("sinks", x.sinks);
  f("latent_dim", x.latent_dim);
  f("rope_dim", x.rope_dim);
  f("q_rank", x.q_rank);
  f("q_a", x.q_a);
  f("kv_a", x.kv_a);
  f("q_a_norm", x.q_a_norm);
  f("kv_a_norm", x.kv_a_norm);
  f("q_a_bias", x.q_a_bias);
  f("kv_a_bias", x.kv_a_bias);
  f("k_b", x.k_b);
  f("v_b", x.v_b);
}

template <typename F>
void Fields(FeedForwardSpec& x, F& f) {
  f("kind", x.kind);
  f("intermediate", x.intermediate);
  f("activation", x.activation);
  f("gate", x.gate);
  f("up", x.up);
  f("down", x.down);
  f("gate_bias", x.gate_bias);
  f("up_bias", x.up_bias);
  f("down_bias", x.down_bias);
  f("experts", x.experts);
  f("experts_used", x.experts_used);
  f("expert_intermediate", x.expert_intermediate);
  f("scoring", x.scoring);
  f("groups", x.groups);
  f("groups_used", x.groups_used);
  f("group_score_top", x.group_score_top);
  f("normalize", x.normalize);
  f("routed_scale", x.routed_scale);
  f("router", x.router);
  f("router_bias", x.router_bias);
  f("shared_gate", x.shared_gate);
  f("router_correction", x.router_correction);
  f("expert_gate", x.expert_gate);
  f("expert_up", x.expert_up);
  f("expert_down", x.expert_down);
  f("expert_gate_bias", x.expert_gate_bias);
  f("expert_up_bias", x.expert_up_bias);
  f("expert_down_bias", x.expert_down_bias);
  f("swiglu_limit", x.swiglu_limit);
  f("swiglu_alpha", x.swiglu_alpha);
}

template <typename F>
void Fields(LayerSpec& x, F& f) {
  f("attention_norm", x.attention_norm);
  f("post_attention_norm", x.post_attention_norm);
  f("feed_forward_norm", x.feed_forward_norm);
  f("post_feed_forward_norm", x.post_feed_forward_norm);
  f("attention", x.attention);
  f("feed_forward", x.feed_forward);
}

template <typename F>
void Fields(ModelSpec& x, F& f) {
  f("architecture", x.architecture);
  f("hidden_size", x.hidden_size);
  f("vocab_size", x.vocab_size);
  f("max_context", x.max_context);
  f("norm_epsilon", x.norm_epsilon);
  f("norm_weight_offset", x.norm_weight_offset);
  f("embedding_scale", x.embedding_scale);
  f("logit_softcap", x.logit_softcap);
  f("logit_scale", x.logit_scale);
  f("embedding", x.embedding);
  f("final_norm", x.final_norm);
  f("lm_head", x.lm_head);
  f("ropes", x.ropes);
  f("layers", x.layers);
  f("skipped_prefixes", x.skipped_prefixes);
}

// ---- Words for enumerations, in the order of their values.

template <typename E>
struct Words;
template <>
struct Words<RopeScaling> {
  static constexpr const char* kAll[] = {"none", "linear", "llama3", "yarn", "dynamic", "longrope"};
};
template <>
struct Words<AttentionKind> {
  static constexpr const char* kAll[] = {"grouped", "latent"};
};
template <>
struct Words<FeedForwardKind> {
  static constexpr const char* kAll[] = {"dense", "experts"};
};
template <>
struct Words<RouterScoring> {
  static constexpr const char* kAll[] = {"softmax", "sigmoid", "softmax_chosen"};
};
template <>
struct Words<kernels::Activation> {
  static constexpr const char* kAll[] = {"silu", "gelu_tanh"};
};

// ---- Writing

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
std::string ToText(const T& value);

// The texts of all fields, in order.
struct FieldTexts {
  std::vector<const char*> names;
  std::vector<std::string> texts;
  template <typename T>
  void operator()(const char* name, const T& value) {
    names.push_back(name);
    texts.push_back(ToText(value));
  }
};

// Shortest digits that give the same number again.
std::string NumberText(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

template <typename T>
std::string ToText(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return format::QuoteJson(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return NumberText(static_cast<double>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_enum_v<T>) {
    return format::QuoteJson(Words<T>::kAll[static_cast<size_t>(value)]);
  } else if constexpr (IsVector<T>::value) {
    std::string text = "[";
    for (const auto& element : value) {
      if (text.size() > 1) text += ",";
      text += ToText(element);
    }
    text += "]";
    return text;
  } else {
    if constexpr (std::is_same_v<T, TensorRef>) {
      TensorRef plain;
      plain.name = value.name;
      if (value == plain) return format::QuoteJson(value.name);
    }
    // What differs from a default-constructed one.
    T defaults_value, copy = value;
    FieldTexts defaults, fields;
    Fields(defaults_value, defaults);
    Fields(copy, fields);
    std::string text = "{";
    for (size_t i = 0; i < fields.texts.size(); ++i) {
      if (fields.texts[i] == defaults.texts[i]) continue;
      if (text.size() > 1) text += ",";
      text.append("\"").append(fields.names[i]).append("\":").append(fields.texts[i]);
    }
    text += "}";
    return text;
  }
}

// ---- Reading

class Reader {
 public:
  explicit Reader(Status* status) : status_(status) {}

  template <typename T>
  void Read(const Json& json, const std::string& where, T* value) {
    if (!status_->ok()) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (json.type != Json::kBool) return Fail(where, "expected true or false");
      *value = json.boolean;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.IsString()) return Fail(where, "expected a string");
      *value = std::string(json.text);
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.IsNumber()) return Fail(where, "expected a number");
      const double number = json.number;
      if (std::abs(number) > static_cast<double>(std::numeric_limits<T>::max())) {
        return Fail(where, "the number is too large");
      }
      *value = static_cast<T>(number);
    } else if constexpr (std::is_integral_v<T>) {
      ReadInteger(json, where, value);
    } else if constexpr (std::is_enum_v<T>) {
      ReadEnum(json, where, value);
    } else if constexpr (IsVector<T>::value) {
      ReadArray(json, where, value);
    } else {
      if constexpr (std::is_same_v<T, TensorRef>) {
        if (json.IsString()) {
          value->name = std::string(json.text);
          return;
        }
      }
      ReadObject(json, where, value);
    }
  }

 private:
  struct FieldReader {
    Reader* reader;
    const Json& object;
    const std::string& where;
    size_t found = 0;
    template <typename T>
    void operator()(const char* name, T& value) {
      const Json* field = object.Get(name);
      if (field == nullptr) return;
      ++found;
      reader->Read(*field, where + "." + name, &value);
    }
  };
  struct FieldNames {
    std::vector<std::string> names;
    template <typename T>
    void operator()(const char* name, const T&) {
      names.emplace_back(name);
    }
  };

  void Fail(const std::string& where, const std::string& what) {
    if (status_->ok()) *status_ = FormatError(StrCat("model specification: ", where, ": ", what));
  }

  template <typename T>
  void ReadInteger(const Json& json, const std::string& where, T* value) {
    if (json.type == Json::kUint) {
      const uint64_t number = json.unsigned_whole();
      if (number > static_cast<uint64_t>(std::numeric_limits<T>::max())) {
        return Fail(where, "the number is too large");
      }
      *value = static_cast<T>(number);
      return;
    }
    if constexpr (std::is_signed_v<T>) {
      if (json.type == Json::kInt) {
        const int64_t number = json.whole;
        if (number < std::numeric_limits<T>::min()) return Fail(where, "the number is too small");
        *value = static_cast<T>(number);
        return;
      }
    }
    Fail(where, "expected a whole number");
  }

  template <typename T>
  void ReadEnum(const Json& json, const std::string& where, T* value) {
    if (json.IsString()) {
      size_t i = 0;
      for (const char* word : Words<T>::kAll) {
        if (json.text == word) {
          *value = static_cast<T>(i);
          return;
        }
        ++i;
      }
    }
    Fail(where, "not a word that this version knows");
  }

  template <typename T>
  void ReadArray(const Json& json, const std::string& where, std::vector<T>* value) {
    if (!json.IsArray() || json.size > kMaxHeadDim) {
      return Fail(where, StrCat("expected an array of at most ", kMaxHeadDim, " elements"));
    }
    value->clear();
    for (const Json& item : json) {
      if (!status_->ok()) return;
      T element{};
      Read(item, StrCat(where, "[", value->size(), "]"), &element);
      value->push_back(std::move(element));
    }
  }

  template <typename T>
  void ReadObject(const Json& json, const std::string& where, T* value) {
    if (!json.IsObject()) return Fail(where, "expected an object");
    FieldReader fields{this, json, where};
    Fields(*value, fields);
    if (!status_->ok() || fields.found == json.size) return;
    FieldNames known;
    Fields(*value, known);
    for (const Json& item : json) {
      bool is_known = false;
      for (const std::string& name : known.names) is_known = is_known || name == item.key;
      if (!is_known) {
        return Fail(where + "." + std::string(item.key),
                    "unknown; a newer version is needed to read this");
      }
    }
  }

  Status* status_;
};

}  // namespace

std::string SpecToJson(const ModelSpec& spec) { return ToText(spec); }

StatusOr<ModelSpec> SpecFromJson(std::string_view json, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(const std::unique_ptr<format::JsonTree> parsed,
                          ParseJsonObject(json, "model specification", memory));
  ModelSpec spec;
  Status status;
  Reader reader(&status);
  reader.Read(parsed->root(), "spec", &spec);
  QINFER_RETURN_IF_ERROR(status);
  QINFER_RETURN_IF_ERROR(ValidateSpec(spec));
  return spec;
}

}  // namespace qinfer::model
