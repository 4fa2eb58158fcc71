// The getters and texts of reports.
#include "api/report.h"

#include <cmath>

#include "api/structs.h"
#include "quant/quantize.h"

namespace qinfer::api {
namespace {

using observe::Report;

// The reports of quantizations and conversions say so, also after they have been JSON.
bool IsQuantization(const Report& root) {
  const Report* const kind = root.Find("kind");
  return kind != nullptr && (kind->AsString() == "quantize" || kind->AsString() == "convert");
}

uint32_t KindOf(const Report& node) {
  switch (node.kind()) {
    case Report::Kind::kNull:
      return QINFER_REPORT_NULL;
    case Report::Kind::kBool:
      return QINFER_REPORT_BOOL;
    case Report::Kind::kInt:
      return QINFER_REPORT_INT;
    case Report::Kind::kNumber:
      return QINFER_REPORT_NUMBER;
    case Report::Kind::kString:
      return QINFER_REPORT_STRING;
    case Report::Kind::kList:
      return QINFER_REPORT_LIST;
    case Report::Kind::kObject:
      return QINFER_REPORT_OBJECT;
  }
  return QINFER_REPORT_NULL;
}

// A node of the tree, or of a row that was made for this look at it.
struct NodeRef {
  const Report* node = nullptr;
  std::unique_ptr<const Report> row;
  Report::RowPlace place;
  const Report* operator->() const { return node; }
  const Report& operator*() const { return *node; }
};

StatusOr<NodeRef> Node(const ReportState& state, const char* path, size_t path_size) {
  QINFER_ASSIGN_OR_RETURN(const std::string_view text, Text(path, path_size, "path"));
  NodeRef found;
  found.node = text.empty() ? &state.root() : state.root().Find(text);
  if (found.node == nullptr) found.place = state.root().FindRow(text);
  if (found.place.rows != nullptr) {
    found.row = std::make_unique<const Report>(found.place.rows->Row(found.place.index));
    found.node = found.place.rest.empty() ? found.row.get() : found.row->Find(found.place.rest);
  }
  if (found.node == nullptr) {
    return Misuse(
        QINFER_DETAIL_NO_SUCH_NODE,
        StrCat("the report has nothing at \"", absl::string_view(text.data(), text.size()), "\""));
  }
  return found;
}

// What a getter hands out lives as long as the report: not the row, but what it was made from.
std::string_view TextOf(const NodeRef& found) {
  if (found.row == nullptr) return found->AsString();
  for (size_t i = 0; i < found.row->size(); ++i) {
    if (&found.row->at(i) != found.node) continue;
    return found.place.rows->Text(found.place.index, found.row->key(i));
  }
  return {};  // rows have no deeper texts
}
std::string_view KeyOf(const NodeRef& found, size_t index) {
  if (found.row == nullptr) return found->key(index);
  return found.place.rows->Key(found.place.index, index);  // rows have no deeper objects
}

Status WrongKind(const char* wanted) {
  return Misuse(QINFER_DETAIL_WRONG_KIND, StrCat("this node of the report is not ", wanted));
}

}  // namespace

StatusOr<std::string_view> ReportState::Render(uint32_t form) {
  if (form > QINFER_RENDER_HTML) {
    return BadOption(
        StrCat("form is ", form, ", known are 0 (JSON), 1 (compact JSON), 2 (table) and 3 (HTML)"));
  }
  if (form >= QINFER_RENDER_TABLE && !quantization_) {
    return UnsupportedError(
        "only the reports of quantizations and conversions have a table and an HTML page");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::optional<std::string>& text = texts_[form];
  if (!text.has_value()) {
    switch (form) {
      case QINFER_RENDER_JSON:
        text = root_.ToJson(2);
        break;
      case QINFER_RENDER_JSON_COMPACT:
        text = root_.ToJson(0);
        break;
      case QINFER_RENDER_TABLE:
        text = quant::ReportTable(root_);
        break;
      default:
        text = quant::ReportHtml(root_);
        break;
    }
  }
  return std::string_view(*text);
}

void MakeReport(const std::shared_ptr<RuntimeState>& runtime, std::shared_ptr<ReportState> state,
                qinfer_report** out) {
  *out = NewHandle<qinfer_report>(runtime, std::move(state));
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace
using qinfer::observe::Report;

extern "C" {

qinfer_status qinfer_report_kind(const qinfer_report* report, const char* path, size_t path_size,
                                 uint32_t* out_kind, qinfer_error* err) {
  if (out_kind != nullptr) *out_kind = QINFER_REPORT_NULL;
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_kind, "out_kind"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    *out_kind = KindOf(*node);
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_size(const qinfer_report* report, const char* path, size_t path_size,
                                 size_t* out_count, qinfer_error* err) {
  if (out_count != nullptr) *out_count = 0;
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    if (node->kind() != Report::Kind::kList && node->kind() != Report::Kind::kObject) {
      return WrongKind("a list or an object");
    }
    *out_count = node->size();
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_key(const qinfer_report* report, const char* path, size_t path_size,
                                size_t index, qinfer_str* out_key, qinfer_error* err) {
  if (out_key != nullptr) *out_key = qinfer_str{};
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out_key, "out_key"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    if (node->kind() != Report::Kind::kObject) return WrongKind("an object");
    if (index >= node->size()) {
      return Misuse(
          QINFER_DETAIL_NO_SUCH_NODE,
          qinfer::StrCat("index is ", index, ", the object has ", node->size(), " members"));
    }
    *out_key = Str(KeyOf(node, index));
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_bool(const qinfer_report* report, const char* path, size_t path_size,
                                 int32_t* out, qinfer_error* err) {
  if (out != nullptr) *out = 0;
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    if (node->kind() != Report::Kind::kBool) return WrongKind("a bool");
    *out = node->AsBool() ? 1 : 0;
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_int(const qinfer_report* report, const char* path, size_t path_size,
                                int64_t* out, qinfer_error* err) {
  if (out != nullptr) *out = 0;
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    const bool whole = node->kind() == Report::Kind::kNumber &&
                       std::fabs(node->AsNumber()) < 9007199254740992.0 &&
                       node->AsNumber() == std::floor(node->AsNumber());
    if (node->kind() != Report::Kind::kInt && !whole) return WrongKind("an integer");
    *out = node->AsInt();
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_double(const qinfer_report* report, const char* path, size_t path_size,
                                   double* out, qinfer_error* err) {
  if (out != nullptr) *out = 0.0;
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    if (node->kind() != Report::Kind::kNumber && node->kind() != Report::Kind::kInt) {
      return WrongKind("a number");
    }
    *out = node->AsNumber();
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_string(const qinfer_report* report, const char* path, size_t path_size,
                                   qinfer_str* out, qinfer_error* err) {
  if (out != nullptr) *out = qinfer_str{};
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const NodeRef node, Node(*report->state, path, path_size));
    if (node->kind() != Report::Kind::kString) return WrongKind("a string");
    *out = Str(TextOf(node));
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_render(qinfer_report* report, uint32_t form, qinfer_str* out,
                                   qinfer_error* err) {
  if (out != nullptr) *out = qinfer_str{};
  return GuardHandle(err, report, "report", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const std::string_view text, report->state->Render(form));
    *out = Str(text);
    return QINFER_OK;
  });
}

qinfer_status qinfer_report_parse(qinfer_runtime* runtime, const char* json, size_t json_size,
                                  qinfer_report** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const std::string_view text, Text(json, json_size, "json"));
    QINFER_ASSIGN_OR_RETURN(Report root, Report::FromJson(text));
    const bool quantization = IsQuantization(root);
    MakeReport(runtime->runtime, std::make_shared<ReportState>(std::move(root), quantization), out);
    return QINFER_OK;
  });
}

void qinfer_report_release(qinfer_report* report) { ReleaseHandle(report); }

}  // extern "C"
