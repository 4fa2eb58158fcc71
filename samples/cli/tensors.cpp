// qinfer inspect: every tensor, as a table or as JSON. Nothing is kept for a tensor once it is
// printed, so that a small file which names very many cannot make the command large.
#include "tensors.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Shape(const qinfer_tensor_info& tensor) {
  std::string text;
  for (uint32_t i = 0; i < tensor.rank; ++i)
    text += (i == 0 ? "" : " x ") + std::to_string(tensor.shape[i]);
  return text;
}

const char* ImportName(uint32_t import, const char* none) {
  switch (import) {
    case QINFER_IMPORT_EXACT:
      return "exact";
    case QINFER_IMPORT_MEASURED:
      return "measured";
    default:
      return none;
  }
}

const char* ContainerName(uint32_t container) {
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

std::string At(size_t index, const char* member) {
  return "tensors[" + std::to_string(index) + "]." + member;
}

bool Flag(const qinfer_report* report, const std::string& path) {
  int32_t value = 0;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_report_bool(report, path.data(), path.size(), &value, &error), error, "no verdict");
  return value != 0;
}

// Of the bytes as the file stores them: as it states it, or as verification has found it. Empty:
// neither. A verification lists the model's tensors in their order.
std::string Checksum(const qinfer_tensor_info& tensor, const qinfer_report* verification,
                     uint32_t index) {
  char text[24] = "";
  if (tensor.has_checksum != 0) {
    std::snprintf(text, sizeof(text), "%016" PRIx64, tensor.checksum);
    return text;
  }
  return verification == nullptr ? "" : Text(verification, At(index, "checksum"));
}

// A value within a document, on lines of their own behind `indent` blanks but for the first.
std::string Indented(const Json& json, size_t indent) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out.append(indent, ' ');
  }
  return out;
}

Json TensorJson(const qinfer_tensor_info& tensor, const std::string& checksum) {
  Json item = {{"name", View(tensor.name)}, {"shape", nullptr}};
  for (uint32_t i = 0; i < tensor.rank; ++i) item["shape"].push_back(tensor.shape[i]);
  item["type"] = View(tensor.source_type);
  item["format"] = View(tensor.format);
  item["bytes"] = tensor.bytes;
  item["import"] = ImportName(tensor.import, "none");
  if (!checksum.empty()) item["checksum"] = checksum;
  return item;
}

Json VerifiedJson(const qinfer_report* verification, size_t index) {
  Json item = {{"name", Text(verification, At(index, "name"))},
               {"bytes", static_cast<uint64_t>(Number(verification, At(index, "bytes")))},
               {"checksum", Text(verification, At(index, "checksum"))},
               {"ok", Flag(verification, At(index, "ok"))}};
  const std::string problem = Text(verification, At(index, "problem"));
  if (!problem.empty()) item["problem"] = problem;
  return item;
}

// `item(i)` of `count`, as the value of a member that stands behind `indent` blanks.
template <typename Item>
void PrintList(size_t count, size_t indent, const Item& item) {
  const std::string blanks(indent + 2, ' ');
  for (size_t i = 0; i < count; ++i) {
    std::printf("%s\n%s%s", i == 0 ? "[" : ",", blanks.c_str(),
                Indented(item(i), indent + 2).c_str());
  }
  if (count == 0) {
    std::printf("null");
  } else {
    std::printf("\n%*s]", static_cast<int>(indent), "");
  }
}

void PrintJson(const qinfer_model* model, const qinfer_report* verification) {
  const qinfer_model_info info = Info(model);
  std::printf("{\n  \"name\": %s,\n  \"container\": \"%s\",\n  \"tensors\": ",
              Indented(Json(View(info.name)), 0).c_str(), ContainerName(info.container));
  PrintList(info.tensor_count, 2, [&](size_t i) {
    const uint32_t index = static_cast<uint32_t>(i);
    const qinfer_tensor_info tensor = Tensor(model, index);
    return TensorJson(tensor, Checksum(tensor, verification, index));
  });
  if (verification != nullptr) {
    std::printf(",\n  \"verify\": {\n    \"ok\": %s,\n    \"bytes\": %" PRIu64
                ",\n    \"problems\": %" PRIu64,
                Flag(verification, "ok") ? "true" : "false",
                static_cast<uint64_t>(Number(verification, "bytes")),
                static_cast<uint64_t>(Number(verification, "problems")));
    const size_t count = Count(verification, "tensors");
    if (count != 0) {
      std::printf(",\n    \"tensors\": ");
      PrintList(count, 4, [&](size_t i) { return VerifiedJson(verification, i); });
    }
    std::printf("\n  }");
  }
  std::printf("\n}\n");
}

void PrintTable(const qinfer_model* model, const qinfer_report* verification) {
  const uint32_t count = Info(model).tensor_count;
  size_t width = 6;
  for (uint32_t i = 0; i < count; ++i) width = std::max(width, Shown(Tensor(model, i).name).size());
  std::printf("%-*s  %-16s %-8s %-20s %-9s %12s  %s\n", static_cast<int>(width), "tensor", "shape",
              "stored", "computed as", "import", "bytes", "checksum");
  for (uint32_t i = 0; i < count; ++i) {
    const qinfer_tensor_info tensor = Tensor(model, i);
    const std::string checksum = Checksum(tensor, verification, i);
    std::printf("%-*s  %-16s %-8s %-20s %-9s %12" PRIu64 "  %s\n", static_cast<int>(width),
                Shown(tensor.name).c_str(), Shape(tensor).c_str(),
                Shown(tensor.source_type).c_str(), Shown(tensor.format).c_str(),
                ImportName(tensor.import, "not used"), tensor.bytes,
                checksum.empty() ? "-" : checksum.c_str());
  }
}

void PrintProblems(const qinfer_report* verification) {
  std::fflush(stdout);
  for (size_t i = 0; i < Count(verification, "tensors"); ++i) {
    const std::string problem = Text(verification, At(i, "problem"));
    if (problem.empty()) continue;
    std::fprintf(stderr, "%s: %s\n", Visible(Text(verification, At(i, "name"))).c_str(),
                 Visible(problem).c_str());
  }
}

}  // namespace

qinfer_model_info Info(const qinfer_model* model) {
  qinfer_model_info info = QINFER_MODEL_INFO_INIT;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_model_info_get(model, &info, &error), error, "cannot describe the model");
  return info;
}

qinfer_tensor_info Tensor(const qinfer_model* model, uint32_t index) {
  qinfer_tensor_info tensor = QINFER_TENSOR_INFO_INIT;
  qinfer_error error = QINFER_ERROR_INIT;
  Check(qinfer_model_tensor(model, index, &tensor, &error), error, "cannot list tensors");
  return tensor;
}

void RunInspect(const Common& common, const std::string& path, bool verify) {
  const Runtime runtime = MakeRuntime(common);
  const Model model = OpenModel(runtime.get(), path, common, QINFER_PARTS_HEADER);
  Report verification;
  if (verify) {
    qinfer_task* raw = nullptr;
    qinfer_error error = QINFER_ERROR_INIT;
    Check(qinfer_verify_begin(model.get(), &raw, &error), error, "cannot verify");
    const Task task(raw);
    Run(task.get(), "verify", common.json);
    verification = TakeReport(task.get());
  }
  const bool ok = verification == nullptr || Flag(verification.get(), "ok");
  if (common.json) {
    PrintJson(model.get(), verification.get());
  } else {
    PrintTable(model.get(), verification.get());
    if (verification != nullptr) {
      PrintProblems(verification.get());
      std::printf("%s\n",
                  ok ? "verified: all contents are as they should be" : "verified: PROBLEMS FOUND");
    }
  }
  if (!ok) throw Error(path + " has contents that cannot be right: see above");
}

}  // namespace cli
