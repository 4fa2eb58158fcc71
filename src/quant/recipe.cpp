// Resolving a recipe: roles from the spec, defaults per role, then overrides in order.
#include "quant/recipe.h"

#include <algorithm>
#include <map>

#include "quant/source_rows.h"
#include "quant/wildcard.h"

namespace qinfer::quant {
namespace {

using kernels::WeightKind;

bool IsFloatType(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}
bool IsFloatKind(WeightKind kind) {
  return kind == WeightKind::kF32 || kind == WeightKind::kF16 || kind == WeightKind::kBF16;
}

// What a recipe's word means for a matrix.
struct Choice {
  bool keep = true;
  weights::Format format;
};
StatusOr<Choice> ParseChoice(std::string_view word, std::string_view option) {
  if (word == "keep") return Choice{};
  StatusOr<weights::Format> format = weights::ParseFormat(word);
  if (!format.ok()) {
    return Annotate(format.status(), StrCat(std::string(option), " (\"keep\" is possible too)"));
  }
  return Choice{false, *format};
}

struct Use {
  TensorUse use = TensorUse::kUnused;
  model::LinearRole role = model::LinearRole::kQ;
  uint32_t layer = UINT32_MAX;
};

void AddSmall(const model::TensorRef& ref, uint32_t layer, std::map<std::string, Use>* uses) {
  if (ref.present()) uses->emplace(ref.name, Use{TensorUse::kSmall, model::LinearRole::kQ, layer});
}

std::map<std::string, Use> CollectUses(const model::ModelSpec& spec) {
  std::map<std::string, Use> uses;
  uses[spec.embedding.name] = {TensorUse::kEmbedding, model::LinearRole::kHead, UINT32_MAX};
  for (const model::LinearUse& use : model::LinearUses(spec)) {
    const bool head = use.role == model::LinearRole::kHead;
    uses.emplace(use.weight->name,
                 Use{head ? TensorUse::kHead : TensorUse::kLinear, use.role, use.layer});
  }
  for (uint32_t l = 0; l < spec.layers.size(); ++l) {
    const model::LayerSpec& layer = spec.layers[l];
    const model::AttentionSpec& a = layer.attention;
    const model::FeedForwardSpec& f = layer.feed_forward;
    for (const model::TensorRef* ref :
         {&layer.attention_norm, &layer.post_attention_norm, &layer.feed_forward_norm,
          &layer.post_feed_forward_norm, &a.q_bias, &a.k_bias, &a.v_bias, &a.o_bias, &a.q_norm,
          &a.k_norm, &a.sinks, &f.gate_bias, &f.up_bias, &f.down_bias}) {
      AddSmall(*ref, l, &uses);
    }
  }
  AddSmall(spec.final_norm, UINT32_MAX, &uses);
  for (const model::RopeSpec& rope : spec.ropes) {
    AddSmall(rope.frequency_factors, UINT32_MAX, &uses);
  }
  return uses;
}

// Order of processing: embedding, layers, head, the rest; inside a class by execution order, then
// name.
uint64_t OrderOf(const Use& use) {
  switch (use.use) {
    case TensorUse::kEmbedding:
      return 0;
    case TensorUse::kLinear:
      return 1 + uint64_t{use.layer} * 32 + static_cast<uint64_t>(use.role);
    case TensorUse::kSmall:
      return use.layer == UINT32_MAX ? UINT64_MAX - 1 : 1 + uint64_t{use.layer} * 32 + 31;
    case TensorUse::kHead:
      return UINT64_MAX - 2;
    case TensorUse::kUnused:
      break;
  }
  return UINT64_MAX;
}

bool Quantizable(const TensorPlan& plan) {
  return plan.use == TensorUse::kLinear || plan.use == TensorUse::kHead ||
         plan.use == TensorUse::kEmbedding;
}

// Decides how a matrix is stored.
Status Decide(const SourceTensor& source, const Choice& choice, TensorPlan* plan) {
  const std::string name = plan->name;
  if (source.rank != 2) {
    return UnsupportedError(
        StrCat("tensor \"", name, "\" has ", source.rank, " dimensions; matrices have 2"));
  }
  plan->rows = source.rows();
  plan->cols = source.cols();
  if (choice.keep) {
    plan->action = TensorAction::kExact;
    if (source.packed) {
      plan->format = source.format;
    } else {
      // A type that we can read but not hold exactly (F64) becomes F32, and its error is measured.
      StatusOr<weights::Format> exact = weights::ExactFormat(source.dtype);
      plan->action = exact.ok() ? TensorAction::kExact : TensorAction::kPack;
      plan->format = exact.ok() ? *exact : weights::Format{};
    }
  } else {
    plan->format = choice.format;
    plan->action = TensorAction::kPack;
    // What the source already is needs no second rounding.
    if (source.packed ? source.format == choice.format
                      : IsFloatType(source.dtype) && IsFloatKind(choice.format.kind) &&
                            weights::ExactFormat(source.dtype).ok() &&
                            *weights::ExactFormat(source.dtype) == choice.format) {
      plan->action = TensorAction::kExact;
    }
  }
  if (!weights::PackedSize(plan->format, plan->rows, plan->cols, &plan->panel_bytes,
                           &plan->bytes)) {
    return UnsupportedError(StrCat("tensor \"", name, "\" [", plan->rows, ", ", plan->cols,
                                   "] cannot be stored as ", weights::Name(plan->format)));
  }
  return OkStatus();
}

// Norms, biases and whatever the spec does not name.
Status DecideSmall(const SourceTensor& source, TensorPlan* plan) {
  const DType type = source.dtype;
  if (type == DType::kOther && !source.packed) {
    return UnsupportedError(StrCat("tensor \"", plan->name, "\" has the type ",
                                   std::string(source.info->dtype_name),
                                   ", which is not readable"));
  }
  plan->rows = source.rows();
  plan->cols = source.cols();
  if (source.packed) {
    plan->action = TensorAction::kExact;
    plan->format = source.format;
    plan->bytes = source.info->bytes;
    plan->panel_bytes = source.panel_bytes;
    return OkStatus();
  }
  plan->bytes = source.info->bytes;
  plan->action = TensorAction::kRaw;
  plan->raw_type = type;
  if (Info(type).block > 1) {
    plan->action = TensorAction::kDecode;
    plan->raw_type = DType::kF32;
    if (!TensorBytes(DType::kF32, source.info->elements(), &plan->bytes)) {
      return FormatError(StrCat("tensor \"", plan->name, "\" is too large"));
    }
  }
  return OkStatus();
}

StatusOr<Choice> DefaultChoice(const Recipe& recipe, TensorUse use) {
  if (use == TensorUse::kEmbedding) return ParseChoice(recipe.embedding, "recipe.embedding");
  if (use == TensorUse::kHead && !recipe.head.empty())
    return ParseChoice(recipe.head, "recipe.head");
  return Choice{recipe.method == "keep", recipe.linear};
}

Status CheckEmbedding(const TensorPlan& plan) {
  if (plan.action == TensorAction::kExact || IsFloatKind(plan.format.kind) ||
      plan.format.kind == WeightKind::kInt8) {
    return OkStatus();
  }
  return MisuseError(StrCat("the embedding \"", plan.name, "\" cannot be ",
                            weights::Name(plan.format), "; choose f16, bf16, f32, int8 or keep"));
}

// Which override decides each tensor; every pattern must hit something that can be quantized.
Status ApplyOverrides(const Recipe& recipe, const std::vector<TensorPlan>& tensors,
                      std::vector<const Override*>* chosen) {
  chosen->assign(tensors.size(), nullptr);
  for (const Override& override : recipe.overrides) {
    bool any = false, quantizable = false;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!WildcardMatch(override.pattern, tensors[i].name)) continue;
      any = true;
      if (!Quantizable(tensors[i])) continue;
      quantizable = true;
      (*chosen)[i] = &override;
    }
    if (quantizable) continue;
    std::vector<std::string_view> names;
    for (const TensorPlan& plan : tensors) {
      if (Quantizable(plan)) names.push_back(plan.name);
    }
    std::string message =
        StrCat("the pattern \"", override.pattern, "\" (set to ", override.format,
               any ? ") matches only tensors that are never quantized" : ") matches no tensor");
    message += "; close names:";
    for (const std::string& name : CloseNames(override.pattern, names, 4)) message += " " + name;
    return MisuseError(message);
  }
  return OkStatus();
}

}  // namespace

Recipe KeepRecipe() {
  Recipe recipe;
  recipe.method = "keep";
  recipe.embedding = "keep";
  return recipe;
}

StatusOr<ResolvedRecipe> ResolveRecipe(const model::ModelSpec& spec,
                                       const format::Checkpoint& checkpoint, const Recipe& recipe) {
  if (recipe.method != "rtn" && recipe.method != "keep") {
    return UnsupportedError(
        StrCat("quantization method \"", recipe.method, "\" is not known; known: rtn"));
  }
  ResolvedRecipe resolved;
  resolved.spec = spec;
  std::map<std::string, Use> uses = CollectUses(spec);
  std::vector<std::pair<Use, TensorPlan>> items;
  for (const format::TensorInfo& info : checkpoint.tensors()) {
    TensorPlan plan;
    plan.source = &info;
    plan.name = std::string(info.name);
    const auto found = uses.find(plan.name);
    const Use use = found == uses.end() ? Use{} : found->second;
    plan.use = use.use;
    plan.role = use.role;
    plan.layer = use.layer;
    // A tensor that the model does not use and that we cannot store is left out.
    if (plan.use == TensorUse::kUnused && info.dtype == DType::kOther &&
        checkpoint.qinfer() == nullptr) {
      continue;
    }
    items.emplace_back(use, std::move(plan));
  }
  if (spec.tied() && !recipe.head.empty()) {
    const format::TensorInfo* embedding = checkpoint.Find(spec.embedding.name);
    if (embedding == nullptr) {
      return FormatError(StrCat(checkpoint.name(), ": no tensor \"", spec.embedding.name, "\""));
    }
    TensorPlan plan;
    plan.source = embedding;
    plan.name = checkpoint.gguf() != nullptr || spec.embedding.name == "token_embd.weight"
                    ? "output.weight"
                    : "lm_head.weight";
    if (checkpoint.Find(plan.name) != nullptr) {
      return UnsupportedError(StrCat(checkpoint.name(),
                                     ": the head is tied, yet there is a tensor \"", plan.name,
                                     "\"; recipe.head cannot add one"));
    }
    plan.use = TensorUse::kHead;
    plan.role = model::LinearRole::kHead;
    resolved.spec.lm_head.name = plan.name;
    resolved.added_head = true;
    items.emplace_back(Use{plan.use, plan.role, UINT32_MAX}, std::move(plan));
  }
  std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
    return OrderOf(a.first) < OrderOf(b.first);
  });
  for (auto& [use, plan] : items) resolved.tensors.push_back(std::move(plan));

  std::vector<const Override*> overrides;
  QINFER_RETURN_IF_ERROR(ApplyOverrides(recipe, resolved.tensors, &overrides));
  for (size_t i = 0; i < resolved.tensors.size(); ++i) {
    TensorPlan& plan = resolved.tensors[i];
    QINFER_ASSIGN_OR_RETURN(const SourceTensor source, DescribeTensor(checkpoint, *plan.source));
    if (!Quantizable(plan)) {
      QINFER_RETURN_IF_ERROR(DecideSmall(source, &plan));
      continue;
    }
    QINFER_ASSIGN_OR_RETURN(Choice choice, DefaultChoice(recipe, plan.use));
    if (overrides[i] != nullptr) {
      QINFER_ASSIGN_OR_RETURN(
          choice, ParseChoice(overrides[i]->format, StrCat("--set ", overrides[i]->pattern)));
    }
    QINFER_RETURN_IF_ERROR(Decide(source, choice, &plan));
    if (plan.use == TensorUse::kEmbedding) QINFER_RETURN_IF_ERROR(CheckEmbedding(plan));
  }
  return resolved;
}

observe::Report RecipeReport(const Recipe& recipe) {
  observe::Report report;
  report["method"] = recipe.method;
  if (recipe.method != "keep") report["linear"] = weights::Name(recipe.linear);
  report["embedding"] = recipe.embedding;
  report["head"] = recipe.head;
  report["search_scales"] = recipe.search_scales;
  report["static_activations"] = recipe.static_activations;
  observe::Report& overrides = report["overrides"];
  for (const Override& override : recipe.overrides) {
    observe::Report& item = overrides.Append();
    item["pattern"] = override.pattern;
    item["format"] = override.format;
  }
  return report;
}

std::string_view TensorUseName(const TensorPlan& plan) {
  switch (plan.use) {
    case TensorUse::kLinear:
      return model::RoleName(plan.role);
    case TensorUse::kHead:
      return "head";
    case TensorUse::kEmbedding:
      return "embedding";
    case TensorUse::kSmall:
      return "small";
    case TensorUse::kUnused:
      break;
  }
  return "unused";
}

}  // namespace qinfer::quant
