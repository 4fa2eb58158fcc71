// Counting and describing; reads no tensor contents.
#include "api/metadata.h"

#include <algorithm>

#include "api/report.h"
#include "api/structs.h"
#include "api/tensor_rows.h"
#include "exec/forward.h"
#include "format/qinfer_file.h"
#include "model/stored_tensor.h"
#include "model/tensor_uses.h"
#include "weights/format.h"

namespace qinfer::api {
namespace {

using observe::Report;

uint32_t ContainerOf(const ModelState& model) {
  if (model.checkpoint == nullptr) return QINFER_CONTAINER_TOKENIZER;
  switch (model.checkpoint->container()) {
    case format::Container::kSafetensors:
      return QINFER_CONTAINER_SAFETENSORS;
    case format::Container::kGguf:
      return QINFER_CONTAINER_GGUF;
    case format::Container::kQinfer:
      return QINFER_CONTAINER_QINFER;
    case format::Container::kConfigOnly:
      return QINFER_CONTAINER_CONFIG;
  }
  return QINFER_CONTAINER_CONFIG;
}

// From the sizes alone: what a configuration without weights implies.
uint64_t ImpliedParameters(const model::ModelSpec& spec) {
  uint64_t count = 0;
  const auto add = [&](const model::TensorUse& use) {
    count += uint64_t{use.rows} * use.cols * use.parts;
  };
  for (const model::LayerSpec& layer : spec.layers) model::ForEachLayerTensor(spec, layer, add);
  model::ForEachEndTensor(spec, add);
  return count;
}

const char* ScalingName(model::RopeScaling scaling) {
  switch (scaling) {
    case model::RopeScaling::kNone:
      return "none";
    case model::RopeScaling::kLinear:
      return "linear";
    case model::RopeScaling::kLlama3:
      return "llama3";
    case model::RopeScaling::kYarn:
      return "yarn";
    case model::RopeScaling::kDynamic:
      return "dynamic";
    case model::RopeScaling::kLongRope:
      return "longrope";
  }
  return "none";
}

void AddSpec(const model::ModelSpec& spec, Report* report) {
  Report& root = *report;
  uint64_t windowed = 0;
  uint32_t window = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.attention.window == 0) continue;
    ++windowed;
    window = layer.attention.window;
  }
  root["tied_head"] = spec.tied();
  root["windowed_layers"] = windowed;
  root["window"] = window;
  root["norm_epsilon"] = static_cast<double>(spec.norm_epsilon);
  for (const model::RopeSpec& rope : spec.ropes) {
    Report& item = root["ropes"].Append();
    item["dims"] = rope.dims;
    item["theta"] = rope.theta;
    item["scaling"] = ScalingName(rope.scaling);
    if (rope.scaling != model::RopeScaling::kNone) item["factor"] = rope.factor;
  }
}

// Bytes of the weights if linear weights were in `dense`, those of routed experts in `expert`, and
// everything else in F16.
uint64_t WeightBytes(const model::ModelSpec& spec, const weights::Format& dense,
                     const weights::Format& expert) {
  uint64_t all = 0;
  const auto add = [&](const weights::Format& format, uint64_t rows, uint64_t cols,
                       uint64_t parts) {
    uint64_t panel = 0, bytes = 0;
    if (weights::PackedSize(format, rows, cols, &panel, &bytes)) all += bytes * parts;
  };
  weights::Format half;
  half.kind = kernels::WeightKind::kF16;
  for (const model::LinearUse& use : model::LinearUses(spec)) {
    add(model::IsExpertRole(use.role) ? expert : dense, use.rows, use.cols, use.parts);
  }
  add(half, spec.vocab_size, spec.hidden_size, 1);
  const auto vectors = [&](const model::TensorUse& use) {
    if (use.vector) all += uint64_t{use.cols} * use.parts * sizeof(float);
  };
  for (const model::LayerSpec& layer : spec.layers) {
    const model::FeedForwardSpec& f = layer.feed_forward;
    if (f.router.present()) add(half, f.experts, spec.hidden_size, 1);
    if (f.shared_gate.present()) add(half, 1, spec.hidden_size, 1);
    model::ForEachLayerTensor(spec, layer, vectors);
  }
  model::ForEachEndTensor(spec, vectors);
  return all;
}

// What the model would take in formats that it can be brought into, computed from its shapes.
void AddPlans(const model::ModelSpec& spec, Report* report) {
  struct Plan {
    const char* name;
    const char* dense;
    const char* expert;
  };
  bool experts = false;
  for (const model::LayerSpec& layer : spec.layers) {
    experts = experts || layer.feed_forward.kind == model::FeedForwardKind::kExperts;
  }
  for (const Plan& plan : {Plan{"F16", "f16", "f16"}, Plan{"INT8", "int8-g32-f16", "int8-g32-f16"},
                           Plan{"INT4", "int4-g64-f16", "int4-g64-f16"},
                           Plan{"INT8, experts INT4", "int8-g32-f16", "int4-g64-f16"}}) {
    if (!experts && std::string_view(plan.dense) != plan.expert) continue;
    const StatusOr<weights::Format> dense = weights::ParseFormat(plan.dense);
    const StatusOr<weights::Format> expert = weights::ParseFormat(plan.expert);
    if (!dense.ok() || !expert.ok()) continue;
    Report& item = (*report)["plans"].Append();
    item["weights"] = plan.name;
    item["weight_bytes"] = WeightBytes(spec, *dense, *expert);
  }
  for (const kernels::KvType type : {kernels::KvType::kF16, kernels::KvType::kInt8}) {
    uint64_t page = 0;
    for (const kv::GroupLayout& group : exec::CacheLayout(spec, type, type)) {
      page += group.page_bytes;
    }
    (*report)["kv_bytes_per_token"][type == kernels::KvType::kF16 ? "f16" : "int8"] =
        page / kernels::kPageTokens;
  }
}

void AddExperts(const model::ModelSpec& spec, Report* report) {
  uint64_t layers = 0;
  const model::FeedForwardSpec* experts = nullptr;
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.feed_forward.kind != model::FeedForwardKind::kExperts) continue;
    ++layers;
    experts = &layer.feed_forward;
  }
  if (experts != nullptr) {
    Report& item = (*report)["experts"];
    item["layers"] = layers;
    item["count"] = experts->experts;
    item["used"] = experts->experts_used;
    item["intermediate_size"] = experts->expert_intermediate;
    item["shared_intermediate_size"] = experts->intermediate;
  }
  for (const std::string& prefix : spec.skipped_prefixes) {
    Report& item = (*report)["skipped"].Append();
    item["tensors"] = prefix + "*";
    item["why"] = "predicts further tokens (MTP); not part of the model";
  }
}

void AddTypes(const format::Checkpoint& checkpoint, Report* report) {
  // In the order of first appearance by name: lists are sorted, so this is stable.
  Report& types = (*report)["types"];
  for (const format::TensorInfo& tensor : checkpoint.tensors()) {
    const TensorDescription described = DescribeTensor(checkpoint, tensor);
    const std::string key(checkpoint.qinfer() != nullptr ? std::string_view(described.format)
                                                         : described.source_type);
    Report& type = types[key];
    type["tensors"] = type["tensors"].AsInt() + 1;
    type["bytes"] = type["bytes"].AsInt() + static_cast<int64_t>(described.bytes);
    type["elements"] = type["elements"].AsInt() + static_cast<int64_t>(tensor.elements());
    if (type["import"].kind() == Report::Kind::kNull) type["import"] = ImportName(described.import);
  }
}

// Nothing where they are not loaded: what was not looked at is not absent.
void AddTokenizer(const ModelState& model, Report* report) {
  if (model.model == nullptr && model.text.tokenizer == nullptr) return;
  if (const tokenizer::Tokenizer* tokenizer = model.tokenizer(); tokenizer != nullptr) {
    Report& node = (*report)["tokenizer"];
    node["vocab_size"] = tokenizer->vocab_size();
    node["bos"] = tokenizer->bos_id();
    node["eos"] = tokenizer->eos_id();
    node["adds_bos"] = tokenizer->adds_bos();
  }
  (*report)["chat_template"] = model.chat_template() != nullptr;
  if (!model.chat_template_error().empty()) {
    (*report)["chat_template_error"] = model.chat_template_error();
  }
}

}  // namespace

std::string_view ContainerName(uint32_t container) {
  switch (container) {
    case QINFER_CONTAINER_SAFETENSORS:
      return "safetensors";
    case QINFER_CONTAINER_GGUF:
      return "gguf";
    case QINFER_CONTAINER_QINFER:
      return "qinfer";
    case QINFER_CONTAINER_CONFIG:
      return "config";
    default:
      return "tokenizer";
  }
}

const char* ImportName(uint32_t import) {
  return import == QINFER_IMPORT_EXACT      ? "exact"
         : import == QINFER_IMPORT_MEASURED ? "measured"
                                            : "none";
}

std::string HexChecksum(uint64_t checksum) {
  return std::string(absl::StrCat(absl::Hex(checksum, absl::kZeroPad16)));
}

TensorDescription DescribeTensor(const format::Checkpoint& checkpoint,
                                 const format::TensorInfo& tensor) {
  TensorDescription out;
  out.tensor = &tensor;
  out.source_type = tensor.dtype_name;
  out.bytes = tensor.bytes;
  out.offset = tensor.offset;
  if (checkpoint.qinfer() != nullptr) {
    const format::QinferTensor* packed = checkpoint.qinfer()->Find(tensor.name);
    if (packed == nullptr) return out;
    out.format = std::string(packed->format);
    if (!packed->source_dtype.empty()) out.source_type = packed->source_dtype;
    out.import = packed->import == "measured" ? QINFER_IMPORT_MEASURED : QINFER_IMPORT_EXACT;
    out.has_checksum = true;
    out.checksum = packed->checksum;
    return out;
  }
  // Bytes in files that are one half of a block-quantized weight.
  const bool mx = model::FindMxScales(checkpoint, tensor) != nullptr;
  const absl::string_view mx_name = Info(DType::kMxfp4).name;
  if (mx) out.source_type = {mx_name.data(), mx_name.size()};
  const StatusOr<weights::Format> exact = weights::ExactFormat(mx ? DType::kMxfp4 : tensor.dtype);
  if (exact.ok()) {
    out.format = weights::Name(*exact);
    out.import = QINFER_IMPORT_EXACT;
  } else if (model::IsMxScales(checkpoint, tensor)) {
    out.import = QINFER_IMPORT_EXACT;
  } else if (tensor.dtype != DType::kOther) {
    out.import = QINFER_IMPORT_MEASURED;
  }
  return out;
}

void FillModelInfo(const ModelState& model, qinfer_model_info* out) {
  qinfer_model_info& info = *out;
  info.container = ContainerOf(model);
  info.name = Str(model.name);
  if (model.checkpoint != nullptr) {
    for (const format::TensorInfo& tensor : model.checkpoint->tensors()) {
      info.parameters += tensor.elements();
      if (const auto* scales = model::FindMxScales(*model.checkpoint, tensor)) {
        info.parameters += tensor.elements() - scales->elements();  // two a byte, scales are none
      }
      info.tensor_bytes += tensor.bytes;
    }
    info.tensor_count = static_cast<uint32_t>(model.checkpoint->tensors().size());
  }
  if (model.model != nullptr) {
    info.flags |= QINFER_MODEL_HAS_WEIGHTS;
    info.weight_bytes = model.model->weight_bytes();
  }
  if (model.tokenizer() != nullptr) {
    info.flags |= QINFER_MODEL_HAS_TOKENIZER;
    info.vocab_size = model.tokenizer()->vocab_size();
  }
  if (model.chat_template() != nullptr) info.flags |= QINFER_MODEL_HAS_TEMPLATE;
  if (!model.spec.has_value()) return;
  const model::ModelSpec& spec = *model.spec;
  info.flags |= QINFER_MODEL_HAS_SPEC;
  if (spec.tied()) info.flags |= QINFER_MODEL_TIED_HEAD;
  info.architecture = Str(spec.architecture);
  info.layers = static_cast<uint32_t>(spec.layers.size());
  info.hidden_size = spec.hidden_size;
  info.vocab_size = spec.vocab_size;
  info.max_context = spec.max_context;
  if (!spec.layers.empty()) {
    const model::LayerSpec& layer = spec.layers.front();
    const model::FeedForwardSpec& f = layer.feed_forward;
    info.intermediate_size =
        f.kind == model::FeedForwardKind::kExperts ? f.expert_intermediate : f.intermediate;
    info.heads = layer.attention.heads;
    info.kv_heads = layer.attention.kv_heads;
    info.head_dim = layer.attention.head_dim;
  }
  if (info.tensor_count == 0) info.parameters = ImpliedParameters(spec);
}

Report InfoReport(const ModelState& model) {
  qinfer_model_info info = {};
  FillModelInfo(model, &info);
  Report root;
  root["name"] = model.name;
  root["container"] = ContainerName(info.container);
  root["architecture"] = std::string_view(info.architecture.data, info.architecture.size);
  root["parameters"] = info.parameters;
  root["tensor_count"] = info.tensor_count;
  root["tensor_bytes"] = info.tensor_bytes;
  root["weight_bytes"] = info.weight_bytes;
  root["layers"] = info.layers;
  root["hidden_size"] = info.hidden_size;
  root["intermediate_size"] = info.intermediate_size;
  root["heads"] = info.heads;
  root["kv_heads"] = info.kv_heads;
  root["head_dim"] = info.head_dim;
  root["vocab_size"] = info.vocab_size;
  root["max_context"] = info.max_context;
  if (model.spec.has_value()) {
    AddSpec(*model.spec, &root);
    AddExperts(*model.spec, &root);
    AddPlans(*model.spec, &root);
  }
  if (model.checkpoint != nullptr) AddTypes(*model.checkpoint, &root);
  AddTokenizer(model, &root);
  return root;
}

Report TensorsReport(const ModelState& model) {
  Report root;
  root["name"] = model.name;
  root["container"] = ContainerName(ContainerOf(model));
  Report& list = root["tensors"];
  if (model.checkpoint == nullptr) return root;
  if (model.checkpoint->tensors().empty()) return root;
  list.SetRows(std::make_shared<ListedTensors>(&model.runtime->memory, *model.checkpoint));
  return root;
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_model_info_get(const qinfer_model* model, qinfer_model_info* out,
                                    qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    qinfer_model_info info = {};
    FillModelInfo(*model->state, &info);
    WriteOut(info, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_model_tensor(const qinfer_model* model, uint32_t index,
                                  qinfer_tensor_info* out, qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    ModelState& state = *model->state;
    const size_t count = state.checkpoint == nullptr ? 0 : state.checkpoint->tensors().size();
    if (index >= count) {
      return BadOption(qinfer::StrCat("index is ", index, ", the model has ", count, " tensors"));
    }
    const qinfer::format::TensorInfo& tensor = state.checkpoint->tensors()[index];
    const TensorDescription described = DescribeTensor(*state.checkpoint, tensor);
    qinfer_tensor_info info = {};
    info.rank = tensor.rank;
    std::copy(std::begin(tensor.shape), std::end(tensor.shape), std::begin(info.shape));
    info.name = Str(tensor.name);
    info.source_type = Str(described.source_type);
    info.format = Str(state.FormatName(described.format));
    info.elements = tensor.elements();
    info.bytes = described.bytes;
    info.offset = described.offset;
    info.checksum = described.checksum;
    info.has_checksum = described.has_checksum ? 1 : 0;
    info.import = described.import;
    WriteOut(info, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_model_report(const qinfer_model* model, uint32_t kind, qinfer_report** out,
                                  qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    if (kind != QINFER_MODEL_REPORT_INFO && kind != QINFER_MODEL_REPORT_TENSORS) {
      return BadOption(qinfer::StrCat("kind is ", kind, ", known are 1 (info) and 2 (tensors)"));
    }
    qinfer::observe::Report root =
        kind == QINFER_MODEL_REPORT_INFO ? InfoReport(*model->state) : TensorsReport(*model->state);
    MakeReport(model->runtime, std::make_shared<ReportState>(std::move(root), false), out);
    return QINFER_OK;
  });
}

}  // extern "C"
