// Records of the journal, and the pieces of what they name.
#include "quant/replay.h"

#include <algorithm>
#include <utility>

#include "quant/bytes.h"
#include "quant/memory_plan.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kMaxReportText = 64u << 20;

}  // namespace

std::string GroupRecord(size_t group, uint64_t state_hash, const std::string& report) {
  ByteWriter record;
  record.Put(static_cast<uint64_t>(group));
  record.Put(state_hash);
  record.PutString(report);
  return record.Take();
}

StatusOr<bool> Replay::Step(std::vector<observe::Report>* reports, uint64_t* done) {
  const size_t index = reports->size();
  *done = 0;
  if (index >= store_->groups().size()) return true;
  if (report_.empty()) {
    ByteReader in(store_->groups()[index], "journal");
    uint64_t group = 0;
    QINFER_RETURN_IF_ERROR(in.Get(&group));
    QINFER_RETURN_IF_ERROR(in.Get(&state_hash_));
    QINFER_RETURN_IF_ERROR(in.GetString(kMaxReportText, &report_));
    if (group != index || index >= groups_->size() || report_.empty()) {
      return FormatError(StrCat(output_path_, ".partial is damaged: its journal names group ",
                                group, " where ", index, " is expected"));
    }
    QINFER_ASSIGN_OR_RETURN(piece_, Buffer::Create(memory_, kReplayBytes, "finished tensors"));
    tensor_ = (*groups_)[index].begin;
    at_ = 0;
    return false;
  }
  if (tensor_ < (*groups_)[index].end) {
    const TensorPlan& plan = resolved_->tensors[tensor_];
    const absl::Span<uint8_t> piece(piece_.as<uint8_t>(),
                                    std::min<uint64_t>(kReplayBytes, plan.bytes - at_));
    QINFER_RETURN_IF_ERROR(store_->ReadBack(writer_->FileOffset(tensor_) + at_, piece));
    QINFER_RETURN_IF_ERROR(writer_->Write(tensor_, at_, piece));
    at_ += piece.size();
    *done = piece.size();
    if (at_ < plan.bytes) return false;
    ++tensor_;
    at_ = 0;
    return false;
  }
  QINFER_ASSIGN_OR_RETURN(observe::Report report, observe::Report::FromJson(report_));
  reports->push_back(std::move(report));
  report_.clear();
  piece_ = Buffer();
  return false;
}

}  // namespace qinfer::quant
