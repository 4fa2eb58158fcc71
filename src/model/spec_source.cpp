// Rope scaling in all spellings, and small shared pieces of configuration readers.
#include "model/spec_source.h"

#include <algorithm>
#include <cmath>

#include "core/half.h"
#include "kernels/ref/math.h"

namespace qinfer::model {
namespace {

constexpr double kMaxTheta = 1e15, kMaxFactor = 1e6;

// yarn's growth of attention with the factor.
double YarnScale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * kernels::math::LogD(factor) + 1.0;
}

uint32_t RotatedDims(JsonReader* object, uint32_t dims) {
  const double partial = object->Number("partial_rotary_factor", 0.0, 1.0, 1.0);
  const uint32_t rotated = static_cast<uint32_t>(static_cast<double>(dims) * partial) / 2 * 2;
  if (rotated == 0 && object->Has("partial_rotary_factor")) {
    object->Fail("partial_rotary_factor", "leaves nothing to rotate");
  } else if (rotated == 0) {
    object->Fail(FormatError(StrCat("a head_dim of ", dims, " leaves nothing to rotate")));
  }
  return rotated;
}

void LongRopeFromHf(JsonReader* object, uint32_t max_context, uint32_t original_context,
                    RopeSpec* rope) {
  rope->scaling = RopeScaling::kLongRope;
  rope->original_context = original_context != 0 ? original_context
                                                 : object->Uint("original_max_position_embeddings",
                                                                1, kMaxPosition, max_context);
  rope->short_factors = object->Numbers("short_factor", kMaxHeadDim);
  rope->long_factors = object->Numbers("long_factor", kMaxHeadDim);
  const auto check = [&](const char* key, const std::vector<double>& factors) {
    bool good = factors.size() == rope->dims / 2;
    for (const double factor : factors) good = good && factor >= 1e-6 && factor <= kMaxFactor;
    if (!good) object->Fail(key, StrCat("expected ", rope->dims / 2, " positive numbers"));
  };
  check("short_factor", rope->short_factors);
  check("long_factor", rope->long_factors);
  // What attention loses over the longer distance, by the growth of the context.
  const double growth = object->Number("factor", 1e-3, kMaxFactor,
                                       static_cast<double>(max_context) / rope->original_context);
  double attention = 1.0;
  if (growth > 1.0 && rope->original_context > 1) {
    attention =
        __builtin_sqrt(1.0 + kernels::math::LogD(growth) /
                                 kernels::math::LogD(static_cast<double>(rope->original_context)));
  }
  rope->attention_factor = object->Number("attention_factor", 1e-3, kMaxFactor, attention);
}

}  // namespace

RopeSpec RopeFromHfObject(JsonReader* object, uint32_t dims, double theta, uint32_t* max_context,
                          uint32_t original_context) {
  RopeSpec rope;
  rope.dims = dims;
  rope.theta = object->Number("rope_theta", 1e-3, kMaxTheta, theta);
  rope.dims = RotatedDims(object, dims);
  std::string type = object->String("rope_type", "");
  if (type.empty()) type = object->String("type", "default");
  if (type == "default" || type == "none") return rope;
  // Early names of longrope.
  if (type == "su" || (type == "yarn" && object->Has("long_factor"))) type = "longrope";
  if (type == "longrope") {
    LongRopeFromHf(object, *max_context, original_context, &rope);
    return rope;
  }
  rope.factor = object->Number("factor", 1e-3, kMaxFactor);
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return rope;
  }
  if (type == "dynamic") {
    // Up to the original context the frequencies are the plain ones; beyond it they depend on the
    // total length (RopeVariant), and the factor says how far it is meant to go.
    rope.scaling = RopeScaling::kDynamic;
    rope.original_context = *max_context;
    const double stretched = *max_context * std::max(rope.factor, 1.0);
    *max_context = static_cast<uint32_t>(std::min<double>(stretched, kMaxPosition));
    return rope;
  }
  if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.low_freq_factor = object->Number("low_freq_factor", 1e-3, kMaxFactor);
    rope.high_freq_factor = object->Number("high_freq_factor", 1e-3, kMaxFactor);
    rope.original_context = original_context != 0
                                ? original_context
                                : object->Uint("original_max_position_embeddings", 1, kMaxPosition);
    if (!(rope.high_freq_factor > rope.low_freq_factor)) {
      object->Fail("high_freq_factor", "must be greater than low_freq_factor");
    }
    return rope;
  }
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = object->Number("beta_fast", 1e-3, kMaxFactor, 32.0);
    rope.beta_slow = object->Number("beta_slow", 1e-3, kMaxFactor, 1.0);
    rope.truncate = object->Bool("truncate", true);
    rope.original_context = original_context != 0 ? original_context
                                                  : object->Uint("original_max_position_embeddings",
                                                                 1, kMaxPosition, *max_context);
    const double mscale = object->Number("mscale", 0.0, kMaxFactor, 0.0);
    const double mscale_all = object->Number("mscale_all_dim", 0.0, kMaxFactor, 0.0);
    double attention = YarnScale(rope.factor, 1.0);
    if (mscale > 0.0 && mscale_all > 0.0) {
      attention = YarnScale(rope.factor, mscale) / YarnScale(rope.factor, mscale_all);
    }
    rope.attention_factor = object->Number("attention_factor", 1e-3, kMaxFactor, attention);
    return rope;
  }
  object->Fail(UnsupportedError(StrCat(object->where(), "rope_type: \"", type,
                                       "\" is not supported; known are default, linear, dynamic, "
                                       "llama3, yarn, longrope")));
  return rope;
}

RopeSpec RopeFromHf(JsonReader* config, uint32_t dims, double default_theta,
                    uint32_t* max_context) {
  const double theta = config->Number("rope_theta", 1e-3, kMaxTheta, default_theta);
  const format::JsonNode* parameters = config->Object("rope_parameters");
  const char* key = "rope_parameters";
  if (parameters == nullptr) {
    parameters = config->Object("rope_scaling");
    key = "rope_scaling";
  }
  RopeSpec rope;
  rope.dims = RotatedDims(config, dims);
  rope.theta = theta;
  if (parameters == nullptr) return rope;
  JsonReader reader(*parameters, config->where() + key + ".");
  if (!reader.Has("partial_rotary_factor")) dims = rope.dims;
  const uint32_t original = config->Uint("original_max_position_embeddings", 1, kMaxPosition, 0);
  rope = RopeFromHfObject(&reader, dims, theta, max_context, original);
  config->Fail(reader.status());
  return rope;
}

double YarnSoftmaxScale(JsonReader* config, const RopeSpec& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1.0;
  const format::JsonNode* object = config->Object("rope_parameters");
  if (object == nullptr) object = config->Object("rope_scaling");
  if (object == nullptr) return 1.0;
  JsonReader reader(*object, config->where() + "rope_scaling.");
  const double all = reader.Number("mscale_all_dim", 0.0, kMaxFactor, 0.0);
  config->Fail(reader.status());
  const double scale = all > 0.0 ? YarnScale(rope.factor, all) : 1.0;
  return scale * scale;
}

RopeSpec RopeFromGguf(GgufReader* gguf, uint32_t dims, bool interleaved, double default_theta,
                      uint32_t context) {
  RopeSpec rope;
  rope.interleaved = interleaved;
  rope.dims = gguf->Uint("rope.dimension_count", 2, dims, dims);
  rope.theta = gguf->Number("rope.freq_base", 1e-3, kMaxTheta, default_theta);
  const std::string type = gguf->String("rope.scaling.type", "none");
  double factor = gguf->Number("rope.scaling.factor", 0.0, kMaxFactor, 0.0);
  // Older files: a linear factor without a type.
  const double old_factor = gguf->Number("rope.scale_linear", 0.0, kMaxFactor, 0.0);
  if (factor == 0.0) factor = old_factor;
  if (factor == 0.0) factor = 1.0;
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.factor = factor;
    rope.beta_fast = gguf->Number("rope.scaling.yarn_beta_fast", 1e-3, kMaxFactor, 32.0);
    rope.beta_slow = gguf->Number("rope.scaling.yarn_beta_slow", 1e-3, kMaxFactor, 1.0);
    rope.original_context =
        gguf->Uint("rope.scaling.original_context_length", 1, kMaxPosition, context);
    rope.attention_factor =
        YarnScale(factor, 1.0) * gguf->Number("rope.scaling.attn_factor", 1e-3, kMaxFactor, 1.0);
  } else if (type == "none" || type == "linear" || type == "longrope") {
    if (factor != 1.0) {
      rope.scaling = RopeScaling::kLinear;
      rope.factor = factor;
    }
  } else {
    gguf->Fail(
        UnsupportedError(StrCat(gguf->gguf().name(), ": rope.scaling.type \"", type,
                                "\" is not supported; known are none, linear, yarn, longrope")));
  }
  return rope;
}

void ReadLongRope(GgufReader* gguf, const format::Checkpoint& checkpoint, uint32_t context,
                  RopeSpec* rope) {
  rope->scaling = RopeScaling::kLongRope;
  rope->factor = 1.0;
  rope->original_context =
      gguf->Uint("rope.scaling.original_context_length", 1, kMaxPosition, context);
  const auto read = [&](const char* name, std::vector<double>* factors) {
    const format::TensorInfo* info = checkpoint.Find(name);
    if (info == nullptr || info->dtype != DType::kF32 || info->elements() != rope->dims / 2) {
      gguf->Fail(FormatError(StrCat(checkpoint.name(), ": tensor ", name, " must hold ",
                                    rope->dims / 2, " factors in F32")));
      return;
    }
    std::vector<float> values(rope->dims / 2);
    gguf->Fail(checkpoint.Read(
        *info, 0, {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)}));
    factors->assign(values.begin(), values.end());
  };
  read("rope_factors_short.weight", &rope->short_factors);
  read("rope_factors_long.weight", &rope->long_factors);
  rope->attention_factor = gguf->Number("rope.scaling.attn_factor", 1e-3, kMaxFactor, 1.0);
}

TensorRef Optional(const format::Checkpoint& checkpoint, const std::string& name) {
  TensorRef ref;
  if (checkpoint.Find(name) != nullptr) ref.name = name;
  return ref;
}

kernels::Activation ActivationFromHf(JsonReader* config, const char* key, const char* otherwise) {
  const std::string name = config->String(key, otherwise);
  if (name == "silu" || name == "swish") return kernels::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return kernels::Activation::kGeluTanh;
  config->Fail(UnsupportedError(StrCat(config->where(), key, ": \"", name,
                                       "\" is not supported; known are silu, gelu_pytorch_tanh")));
  return kernels::Activation::kSilu;
}

float RoundToModelType(JsonReader* config, double value) {
  const float single = static_cast<float>(value);
  std::string type = config->String("dtype", "");
  if (type.empty()) type = config->String("torch_dtype", "");
  if (type == "bfloat16") return Bf16ToFloat(FloatToBf16(single));
  if (type == "float16") return HalfToFloat(FloatToHalf(single));
  return single;
}

}  // namespace qinfer::model
