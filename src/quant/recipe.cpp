// Resolving a recipe: roles from the spec, defaults per role, then overrides in order.
#include "quant/recipe.h"

#include <algorithm>

#include "core/checked.h"
#include "format/qinfer_file.h"
#include "format/tensor_table.h"
#include "kernels/layout.h"
#include "model/stored_rows.h"
#include "model/stored_tensor.h"
#include "quant/source_rows.h"
#include "quant/source_uses.h"
#include "quant/wildcard.h"

namespace qinfer::quant {
namespace {

bool IsFloatType(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}
// Types that a search for scales could only spoil.
bool IsCopied(DType type) { return IsFloatType(type) || type == DType::kMxfp4; }

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

bool Quantizable(const TensorPlan& plan) {
  return plan.use == TensorUse::kLinear || plan.use == TensorUse::kHead ||
         plan.use == TensorUse::kEmbedding;
}

// What reading the source gives without loss of our making: its own format, or floats that hold it.
struct OwnFormat {
  weights::Format format;
  bool holds = true;    // repacked as it is, not by way of floats
  bool copied = false;  // where the recipe asks for just this format
};
StatusOr<OwnFormat> SourceFormat(const format::Checkpoint& checkpoint, const SourceTensor& source,
                                 const TensorPlan& plan) {
  if (source.packed) return OwnFormat{source.format};
  if (plan.by_ref) {
    const model::TensorUse use{
        &plan.ref, static_cast<uint32_t>(plan.rows), static_cast<uint32_t>(plan.cols), false, false,
        plan.parts};
    QINFER_ASSIGN_OR_RETURN(const model::StoredTensor stored, model::FindStored(checkpoint, use));
    return OwnFormat{stored.format, model::IsGathered(plan.ref, stored), IsCopied(stored.dtype)};
  }
  // A type that we can read but not hold exactly (F64) becomes F32, and its error is measured.
  StatusOr<weights::Format> exact = weights::ExactFormat(source.dtype);
  if (!exact.ok()) return OwnFormat{weights::Format{}, false};
  return OwnFormat{*exact, true, IsCopied(source.dtype)};
}

// Decides how a matrix is stored.
Status Decide(const format::Checkpoint& checkpoint, const SourceTensor& source,
              const Choice& choice, TensorPlan* plan) {
  const std::string name = plan->name;
  // The gate of a shared expert is one row, which GGUF files hold as a vector.
  const bool one_row = source.rank == 1 && plan->use == TensorUse::kKept;
  if (source.rank != 2 && !one_row && plan->rows == 0) {
    return UnsupportedError(
        StrCat("tensor \"", name, "\" has ", source.rank, " dimensions; matrices have 2"));
  }
  if (plan->rows == 0) {
    plan->rows = source.rows();
    plan->cols = source.cols();
  }
  QINFER_ASSIGN_OR_RETURN(const OwnFormat own, SourceFormat(checkpoint, source, *plan));
  if (choice.keep) {
    plan->action = own.holds ? TensorAction::kExact : TensorAction::kPack;
    plan->format = own.format;
  } else {
    plan->format = choice.format;
    plan->action = TensorAction::kPack;
    // What the source already is needs no second rounding.
    if (own.holds && (source.packed || own.copied) && own.format == choice.format) {
      plan->action = TensorAction::kExact;
    }
  }
  if (!weights::PackedSize(plan->format, plan->rows, plan->cols, &plan->panel_bytes,
                           &plan->bytes) ||
      !CheckedMul<uint64_t>(plan->bytes, plan->parts, &plan->bytes)) {
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
  if (plan.action == TensorAction::kExact || kernels::layout::IsFloat(plan.format.kind) ||
      plan.format.kind == kernels::WeightKind::kInt8) {
    return OkStatus();
  }
  return MisuseError(StrCat("the embedding \"", plan.name, "\" cannot be ",
                            weights::Name(plan.format), "; choose f16, bf16, f32, int8 or keep"));
}

// Which override decides each tensor; every pattern must hit something that can be quantized.
Status ApplyOverrides(const Recipe& recipe, const std::vector<TensorPlan>& tensors,
                      std::vector<const Override*>* chosen) {
  constexpr size_t kNamed = 4;
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
    if (any) {
      std::string message =
          StrCat("the pattern \"", override.pattern, "\" (set to ", override.format,
                 ") matches only tensors that are never ", "quantized (norms, biases, routers):");
      size_t named = 0;
      for (const TensorPlan& plan : tensors) {
        if (!WildcardMatch(override.pattern, plan.name)) continue;
        message += named == kNamed ? " ..." : " " + plan.name;
        if (named++ == kNamed) break;
      }
      return MisuseError(message);
    }
    std::vector<std::string_view> names;
    for (const TensorPlan& plan : tensors) {
      if (Quantizable(plan)) names.push_back(plan.name);
    }
    std::string message = StrCat("the pattern \"", override.pattern, "\" (set to ", override.format,
                                 ") matches no tensor; close names:");
    for (const std::string& name : CloseNames(override.pattern, names, kNamed))
      message += " " + name;
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
  resolved.static_activations = recipe.static_activations;
  const bool packed = checkpoint.qinfer() != nullptr;
  NameSplit(packed, &resolved.spec);
  const Uses uses = CollectUses(spec, packed);
  std::vector<std::pair<Use, TensorPlan>> items;
  const auto add = [&](const Use& use, const format::TensorInfo& info, std::string name) {
    TensorPlan plan;
    plan.source = &info;
    plan.name = std::move(name);
    plan.use = use.use;
    plan.role = use.role;
    plan.layer = use.layer;
    plan.part = use.part;
    // Values that need what lies in another tensor.
    const bool scaled =
        checkpoint.qinfer() == nullptr &&
        (info.dtype == DType::kF8E4M3 || model::FindMxScales(checkpoint, info) != nullptr);
    if (use.use == TensorUse::kLinear &&
        (use.parts > 1 || scaled || NeedsSplit(use.ref, use.rows, packed))) {
      plan.ref = use.ref;
      plan.rows = use.rows;
      plan.cols = use.cols;
      plan.parts = use.parts;
      plan.by_ref = scaled || (NeedsSplit(use.ref, use.rows, packed) && !IsRange(use.ref));
    }
    items.emplace_back(use, std::move(plan));
  };
  for (const format::TensorInfo& info : checkpoint.tensors()) {
    const std::string name(info.name);
    const auto [first, last] = uses.equal_range(name);
    if (first == last) {
      if (IsSkipped(spec, name)) {
        ++resolved.skipped_tensors;
        resolved.skipped_bytes += info.bytes;
        continue;
      }
      // A tensor that the model does not use and that we cannot store is left out.
      if (info.elements() == 0 || model::IsScales(checkpoint, info) ||
          (info.dtype == DType::kOther && checkpoint.qinfer() == nullptr)) {
        continue;
      }
      // Before there is a plan for each: a small file may name very many.
      if (items.size() == format::kMaxQinferTensors) {
        return UnsupportedError(StrCat(checkpoint.name(), ": more than ", format::kMaxQinferTensors,
                                       " tensors are to be stored, which a .qinfer file cannot "
                                       "hold; tensor \"",
                                       format::Printable(info.name), "\" is one of them"));
      }
      add(Use{}, info, name);
      continue;
    }
    for (auto it = first; it != last; ++it) {
      const bool split = NeedsSplit(it->second.ref, it->second.rows, packed);
      add(it->second, info, split ? SplitName(name, it->second.role) : name);
    }
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
    Use use;
    use.use = plan.use;
    use.role = plan.role;
    items.emplace_back(use, std::move(plan));
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
    if (plan.use == TensorUse::kKept) {
      QINFER_RETURN_IF_ERROR(Decide(checkpoint, source, Choice{}, &plan));
      continue;
    }
    if (!Quantizable(plan)) {
      QINFER_RETURN_IF_ERROR(DecideSmall(source, &plan));
      continue;
    }
    QINFER_ASSIGN_OR_RETURN(Choice choice, DefaultChoice(recipe, plan.use));
    if (overrides[i] != nullptr) {
      QINFER_ASSIGN_OR_RETURN(
          choice, ParseChoice(overrides[i]->format, StrCat("--set ", overrides[i]->pattern)));
    }
    QINFER_RETURN_IF_ERROR(Decide(checkpoint, source, choice, &plan));
    if (plan.use == TensorUse::kEmbedding) QINFER_RETURN_IF_ERROR(CheckEmbedding(plan));
  }
  return resolved;
}

const TensorPlan* HeadPlan(const ResolvedRecipe& resolved) {
  const TensorPlan* embedding = nullptr;
  for (const TensorPlan& plan : resolved.tensors) {
    if (plan.use == TensorUse::kHead) return &plan;
    if (plan.use == TensorUse::kEmbedding) embedding = &plan;
  }
  return embedding;
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

std::string_view SourceTypeName(const TensorPlan& plan) {
  const bool blocks = plan.by_ref && plan.source->dtype == DType::kU8;
  const absl::string_view name = Info(DType::kMxfp4).name;
  return blocks ? std::string_view(name.data(), name.size()) : plan.source->dtype_name;
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
    case TensorUse::kKept:
      return "router";
    case TensorUse::kUnused:
      break;
  }
  return "unused";
}

}  // namespace qinfer::quant
