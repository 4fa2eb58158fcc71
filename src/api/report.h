// The state behind qinfer_report: a finished tree, and its texts, which are made when first asked
// for.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/handle.h"
#include "api/runtime.h"
#include "observe/report.h"
#include "qinfer/observe.h"

namespace qinfer::api {

class ReportState {
 public:
  // `quantization`: it can also be shown as a table and as a page.
  ReportState(observe::Report root, bool quantization)
      : root_(std::move(root)), quantization_(quantization) {}
  const observe::Report& root() const { return root_; }
  StatusOr<std::string_view> Render(uint32_t form);

 private:
  const observe::Report root_;
  const bool quantization_;
  std::mutex mutex_;
  std::optional<std::string> texts_[4];  // by QINFER_RENDER_...
};

// A report handle. Reports need their runtime for nothing but the count of handles.
void MakeReport(const std::shared_ptr<RuntimeState>& runtime, std::shared_ptr<ReportState> state,
                qinfer_report** out);

}  // namespace qinfer::api

struct qinfer_report {
  qinfer_report(std::shared_ptr<qinfer::api::RuntimeState> owner,
                std::shared_ptr<qinfer::api::ReportState> tree)
      : header(qinfer::api::HandleTraits<qinfer_report>::kMagic),
        runtime(std::move(owner)),
        state(std::move(tree)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::ReportState> state;
};
