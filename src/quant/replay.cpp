// Records of the journal, and the pieces of what they name.
#include "quant/replay.h"

#include <algorithm>
#include <utility>

#include "quant/bytes.h"
#include "quant/fingerprint.h"
#include "quant/memory_plan.h"

namespace qinfer::quant {
namespace {

constexpr uint32_t kMaxReportText = 64u << 20;

}  // namespace

std::string GroupRecord::ToBytes() const {
  ByteWriter record;
  record.Put(group);
  record.Put(state_hash);
  record.Put(data_hash);
  record.PutString(report);
  return record.Take();
}

StatusOr<GroupRecord> GroupRecord::FromBytes(const std::string& bytes) {
  ByteReader in(bytes, "journal");
  GroupRecord record;
  QINFER_RETURN_IF_ERROR(in.Get(&record.group));
  QINFER_RETURN_IF_ERROR(in.Get(&record.state_hash));
  QINFER_RETURN_IF_ERROR(in.Get(&record.data_hash));
  QINFER_RETURN_IF_ERROR(in.GetString(kMaxReportText, &record.report));
  return record;
}

uint64_t GroupHash(const ModelWriter& writer, const Group& group) {
  ByteWriter checksums;
  for (size_t i = group.begin; i < group.end; ++i) checksums.Put(writer.Checksum(i));
  return HashText(checksums.bytes());
}

void Replay::Restart(const Group& group, Progress* done) {
  for (size_t i = group.begin; i < group.end; ++i) writer_->Restart(i);
  uint64_t shown = at_;
  for (size_t i = group.begin; i < tensor_; ++i) shown += resolved_->tensors[i].bytes;
  done->done -= shown;
}

void Replay::DropLast(std::vector<observe::Report>* reports, Progress* done) {
  reports->pop_back();
  const Group& group = (*groups_)[reports->size()];
  tensor_ = group.end;
  at_ = 0;
  Restart(group, done);
}

StatusOr<bool> Replay::Step(std::vector<observe::Report>* reports, Progress* done) {
  const size_t index = reports->size();
  if (index >= store_->groups().size()) return true;
  if (record_.report.empty()) {
    QINFER_ASSIGN_OR_RETURN(record_, GroupRecord::FromBytes(store_->groups()[index]));
    if (record_.group != index || index >= groups_->size() || record_.report.empty()) {
      return FormatError(StrCat(output_path_, ".partial is damaged: its journal names group ",
                                record_.group, " where ", index,
                                " is expected; run without resume to start anew"));
    }
    QINFER_ASSIGN_OR_RETURN(piece_, Buffer::Create(memory_, kReplayBytes, "finished tensors"));
    tensor_ = (*groups_)[index].begin;
    at_ = 0;
    return false;
  }
  const Group& group = (*groups_)[index];
  if (tensor_ < group.end) {
    const TensorPlan& plan = resolved_->tensors[tensor_];
    const absl::Span<uint8_t> piece(piece_.as<uint8_t>(),
                                    std::min<uint64_t>(kReplayBytes, plan.bytes - at_));
    QINFER_ASSIGN_OR_RETURN(const bool whole,
                            store_->ReadBack(writer_->FileOffset(tensor_) + at_, piece));
    if (!whole) {
      Restart(group, done);
      piece_ = Buffer();
      return true;
    }
    QINFER_RETURN_IF_ERROR(writer_->Write(tensor_, at_, piece));
    at_ += piece.size();
    done->done += piece.size();
    if (at_ < plan.bytes) return false;
    ++tensor_;
    at_ = 0;
    return false;
  }
  piece_ = Buffer();
  if (GroupHash(*writer_, group) != record_.data_hash) {
    Restart(group, done);
    return true;
  }
  QINFER_ASSIGN_OR_RETURN(observe::Report report, observe::Report::FromJson(record_.report));
  reports->push_back(std::move(report));
  state_hashes_.push_back(record_.state_hash);
  record_.report.clear();
  return false;
}

}  // namespace qinfer::quant
