// Checksums and finite values, chunk by chunk.
#include "api/verify.h"

#include <algorithm>
#include <cmath>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "api/report.h"
#include "api/structs.h"
#include "format/qinfer_file.h"
#include "weights/format.h"

namespace qinfer::api {
namespace {

// Counted in elements, so that a chunk ends between blocks: this many are whole blocks of every
// type.
constexpr uint64_t kChunkElements = 64 * 1024;
constexpr uint64_t kChunkBytes = kChunkElements * 8;  // of the widest type

}  // namespace

struct VerifyWork::Hash {
  XXH3_state_t state;
};

StatusOr<std::unique_ptr<VerifyWork>> VerifyWork::Create(std::shared_ptr<ModelState> model) {
  std::unique_ptr<VerifyWork> work(new VerifyWork(std::move(model)));
  QINFER_RETURN_IF_ERROR(work->Begin());
  return work;
}

VerifyWork::VerifyWork(std::shared_ptr<ModelState> model)
    : model_(std::move(model)), hash_(std::make_unique<Hash>()) {}

Status VerifyWork::Begin() {
  Memory* const memory = &model_->runtime->memory;
  if (model_->checkpoint->qinfer() != nullptr) {
    QINFER_ASSIGN_OR_RETURN(pass_,
                            format::ChecksumPass::Create(model_->checkpoint->qinfer(), memory));
  } else {
    QINFER_ASSIGN_OR_RETURN(bytes_, Buffer::Create(memory, kChunkBytes, "verification"));
    QINFER_ASSIGN_OR_RETURN(floats_,
                            Buffer::Create(memory, kChunkElements * sizeof(float), "verification"));
  }
  uint64_t total = 0;
  tensors_ = std::make_shared<VerifiedTensors>(memory, model_->checkpoint->tensors());
  for (const format::TensorInfo& tensor : model_->checkpoint->tensors()) total += tensor.bytes;
  progress_.total.store(total);
  progress_.phase.store("verify");
  report_["ok"] = false;  // first in the document
  report_["bytes"] = total;
  report_["problems"] = 0;
  XXH3_64bits_reset(&hash_->state);
  return OkStatus();
}

VerifyWork::~VerifyWork() = default;

std::string VerifyWork::CheckValues(absl::Span<const uint8_t> chunk) {
  const format::TensorInfo& tensor = model_->checkpoint->tensors()[tensor_];
  const DTypeInfo& type = Info(tensor.dtype);
  if (tensor.dtype == DType::kOther) return {};
  const uint64_t elements = chunk.size() / type.bytes * type.block;
  float* const values = floats_.as<float>();
  const Status decoded = weights::DecodeToFloat(tensor.dtype, chunk, elements, values);
  if (decoded.code() == absl::StatusCode::kUnimplemented) return {};  // integers and the like
  const uint64_t first = at_ / type.bytes * type.block;
  if (!decoded.ok()) {
    return StrCat("from element ", first, ": ", decoded.message());
  }
  for (uint64_t i = 0; i < elements; ++i) {
    if (!std::isfinite(values[i])) return StrCat("element ", first + i, " is not finite");
  }
  return {};
}

Status VerifyWork::ReadChunk() {
  const format::Checkpoint& checkpoint = *model_->checkpoint;
  const format::TensorInfo& tensor = checkpoint.tensors()[tensor_];
  const DTypeInfo& type = Info(tensor.dtype);
  const uint64_t most =
      tensor.dtype == DType::kOther ? kChunkBytes : kChunkElements / type.block * type.bytes;
  const size_t size = static_cast<size_t>(std::min(most, tensor.bytes - at_));
  const absl::Span<uint8_t> chunk(bytes_.as<uint8_t>(), size);
  QINFER_RETURN_IF_ERROR(checkpoint.Read(tensor, at_, chunk));
  XXH3_64bits_update(&hash_->state, chunk.data(), chunk.size());
  if (problem_.empty()) problem_ = CheckValues(chunk);
  at_ += size;
  progress_.done.fetch_add(size);
  return OkStatus();
}

// Weights come first in a pass, in the order of the checkpoint's tensors.
Status VerifyWork::StepPacked() {
  const format::TensorInfo& tensor = model_->checkpoint->tensors()[tensor_];
  const Status compared = pass_->Step();
  if (compared.code() == absl::StatusCode::kDataLoss) {
    problem_ = std::string(compared.message());
  } else {
    QINFER_RETURN_IF_ERROR(compared);
  }
  if (pass_->tensors_done() == tensor_) {
    progress_.done.fetch_add(format::ChecksumPass::kPieceBytes);
    at_ += format::ChecksumPass::kPieceBytes;
    return OkStatus();
  }
  progress_.done.fetch_add(tensor.bytes - std::min(tensor.bytes, at_));
  FinishTensor(model_->checkpoint->qinfer()->tensors()[tensor_].checksum);
  return OkStatus();
}

void VerifyWork::FinishTensor(uint64_t checksum) {
  const format::TensorInfo& tensor = model_->checkpoint->tensors()[tensor_];
  tensors_->Add(tensor.name, tensor.bytes, checksum, problem_);
  problem_.clear();
  XXH3_64bits_reset(&hash_->state);
  at_ = 0;
  ++tensor_;
}

StatusOr<bool> VerifyWork::Step(const Deadline& deadline) {
  const size_t count = model_->checkpoint->tensors().size();
  do {
    if (deadline.Cancelled()) return CancelledError();
    if (tensor_ == count) {
      if (tensors_ == nullptr) return true;
      report_["ok"] = tensors_->problems() == 0;
      report_["problems"] = tensors_->problems();
      if (count != 0) report_["tensors"].SetRows(std::move(tensors_));
      tensors_.reset();
      return true;
    }
    if (pass_ != nullptr) {
      QINFER_RETURN_IF_ERROR(StepPacked());
      continue;
    }
    const uint64_t bytes = model_->checkpoint->tensors()[tensor_].bytes;
    if (at_ < bytes) QINFER_RETURN_IF_ERROR(ReadChunk());
    if (at_ == bytes) FinishTensor(XXH3_64bits_digest(&hash_->state));
  } while (!deadline.Expired());
  return false;
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_verify_begin(const qinfer_model* model, qinfer_task** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedCheckpoint(*model->state));
    TaskParts task;
    task.kind = QINFER_TASK_VERIFY;
    QINFER_ASSIGN_OR_RETURN(task.work, VerifyWork::Create(model->state));
    task.collect = [](qinfer::Work* work, TaskResults* results) {
      results->report =
          std::make_shared<ReportState>(static_cast<VerifyWork*>(work)->TakeReport(), false);
      return qinfer::OkStatus();
    };
    return MakeTask(model->runtime, std::move(task), out);
  });
}

}  // extern "C"
