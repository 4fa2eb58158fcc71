// Runs the pieces of tensor sets over the executor, with scratch for each lane, and keeps the first
// error (by piece, so that messages do not depend on timing).
#pragma once

#include <algorithm>
#include <mutex>
#include <new>

#include "core/work.h"
#include "exec/tensor_set.h"
#include "exec/units.h"

namespace qinfer::exec {

class PieceLoader {
 public:
  // `most_pieces`: of any set that will be run, so that small models do not pay for many lanes.
  static StatusOr<PieceLoader> Create(const Context& context, size_t scratch_bytes,
                                      uint32_t most_pieces) {
    PieceLoader loader;
    loader.context_ = context;
    loader.lanes_ = Lanes(context, most_pieces);
    loader.stride_ = Stride(scratch_bytes);
    QINFER_ASSIGN_OR_RETURN(
        loader.scratch_,
        Buffer::Create(context.memory, loader.lanes_ * loader.stride_, "loading scratch"));
    return loader;
  }
  static uint64_t PlanBytes(const Context& context, size_t scratch_bytes, uint32_t most_pieces) {
    return uint64_t{Lanes(context, most_pieces)} * Stride(scratch_bytes);
  }

  // True when all pieces of the set are loaded; else goes on from *next in a later call.
  StatusOr<bool> Run(const format::Checkpoint& checkpoint, TensorSet* set, const Deadline& deadline,
                     uint32_t* next) {
    std::mutex mutex;
    Status error;
    uint32_t error_piece = UINT32_MAX;
    bool no_memory = false;
    const bool done =
        RunUnits(context_.executor, lanes_, deadline, set->pieces(), next,
                 [&](uint32_t lane, uint32_t piece) {
                   try {
                     const Status status =
                         set->LoadPiece(checkpoint, piece, scratch_.as<uint8_t>() + lane * stride_);
                     if (status.ok()) return;
                     const std::lock_guard<std::mutex> lock(mutex);
                     if (piece < error_piece) {
                       error_piece = piece;
                       error = status;
                     }
                   } catch (const std::bad_alloc&) {  // bodies of an executor must not throw
                     const std::lock_guard<std::mutex> lock(mutex);
                     no_memory = true;
                   }
                 });
    QINFER_RETURN_IF_ERROR(error);
    if (no_memory) return NoMemoryError("no memory while loading weights");
    return done;
  }

 private:
  static constexpr uint32_t kMaxLanes = 64;
  static uint32_t Lanes(const Context& context, uint32_t most_pieces) {
    return std::max(1u,
                    std::min(std::min(context.executor->concurrency(), kMaxLanes), most_pieces));
  }
  static size_t Stride(size_t scratch_bytes) {
    return (scratch_bytes + Memory::kAlign - 1) / Memory::kAlign * Memory::kAlign;
  }

  Context context_;
  uint32_t lanes_ = 1;
  size_t stride_ = 0;
  Buffer scratch_;
};

}  // namespace qinfer::exec
