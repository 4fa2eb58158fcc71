// Going on where an earlier quantization stopped: its finished groups lie in the output already,
// and their bytes are only shown to the writer again. What the writer then says of them must be
// what the journal says: a group that has changed since, and all after it, are computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/status.h"
#include "core/work.h"
#include "observe/report.h"
#include "quant/group_work.h"
#include "quant/model_writer.h"
#include "quant/partial_store.h"

namespace qinfer::quant {

// The record of a finished group, as the store keeps it. `data_hash`: GroupHash, which it is held
// to.
struct GroupRecord {
  uint64_t group = 0, state_hash = 0, data_hash = 0;
  std::string report;

  std::string ToBytes() const;
  static StatusOr<GroupRecord> FromBytes(const std::string& bytes);
};
// Of the checksums of a group's tensors, all written.
uint64_t GroupHash(const ModelWriter& writer, const Group& group);

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

  // A piece; true when all are shown, or the next is not what was written. `reports` gets that of
  // each group, `done` is moved by its bytes.
  StatusOr<bool> Step(std::vector<observe::Report>* reports, Progress* done);
  // What the journal says of a group's hidden states; of those that were shown.
  uint64_t state_hash(size_t group) const { return state_hashes_[group]; }
  // Forgets the last group that was shown.
  void DropLast(std::vector<observe::Report>* reports, Progress* done);

 private:
  void Restart(const Group& group, Progress* done);

  const PartialStore* store_;
  ModelWriter* writer_;
  const ResolvedRecipe* resolved_;
  const std::vector<Group>* groups_;
  const std::string output_path_;
  Memory* memory_;
  GroupRecord record_;  // of the group that is being shown; no report between groups
  std::vector<uint64_t> state_hashes_;
  Buffer piece_;
  size_t tensor_ = 0;
  uint64_t at_ = 0;
};

}  // namespace qinfer::quant
