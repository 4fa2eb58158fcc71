// Going on where an earlier quantization stopped: its finished groups lie in the output already,
// and their bytes are only shown to the writer again, for the checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "observe/report.h"
#include "quant/group_work.h"
#include "quant/model_writer.h"
#include "quant/partial_store.h"

namespace qinfer::quant {

// The record of a finished group, as the store keeps it.
std::string GroupRecord(size_t group, uint64_t state_hash, const std::string& report);

class Replay {
 public:
  // What it is given outlives it. `output_path` is for messages.
  Replay(const PartialStore* store, ModelWriter* writer, const ResolvedRecipe* resolved,
         const std::vector<Group>* groups, std::string output_path, Memory* memory)
      : store_(store),
        writer_(writer),
        resolved_(resolved),
        groups_(groups),
        output_path_(std::move(output_path)),
        memory_(memory) {}

  // A piece; true when all are shown. `reports` gets that of each group, `done` its bytes.
  StatusOr<bool> Step(std::vector<observe::Report>* reports, uint64_t* done);
  uint64_t state_hash() const { return state_hash_; }  // of the last group

 private:
  const PartialStore* store_;
  ModelWriter* writer_;
  const ResolvedRecipe* resolved_;
  const std::vector<Group>* groups_;
  const std::string output_path_;
  Memory* memory_;
  std::string report_;  // of the group that is being shown; empty between groups
  Buffer piece_;
  size_t tensor_ = 0;
  uint64_t at_ = 0, state_hash_ = 0;
};

}  // namespace qinfer::quant
