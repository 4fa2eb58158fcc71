// What loading and generating will take, from headers alone: the sums of what the same code later
// allocates. The text parts are built once, through an account of their own, and dropped.
#include <algorithm>

#include "core/account.h"
#include "core/checked.h"
#include "exec/forward.h"
#include "exec/load_pieces.h"
#include "exec/model.h"
#include "exec/tensor_set.h"
#include "exec/text_parts.h"
#include "format/checksum_pass.h"
#include "format/json_tree.h"
#include "format/qinfer_file.h"
#include "io/mapped.h"
#include "kv/cache.h"

namespace qinfer::exec {
namespace {

constexpr uint64_t kDefaultContext = 4096;
constexpr uint64_t kGgufWindow = 256 << 10;  // through which a GGUF header is read

uint64_t MappedBytes(const format::Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const std::shared_ptr<io::Source>& source : checkpoint.sources()) {
    bytes += io::MappedBytes(*source);
  }
  return bytes;
}

// What the document that describes the model takes while it is read: before anything is loaded.
StatusOr<uint64_t> SpecBytes(const format::Checkpoint& checkpoint, Memory* memory) {
  const std::string_view text = checkpoint.qinfer() != nullptr
                                    ? checkpoint.qinfer()->Metadata(format::kMetaSpec)
                                    : checkpoint.side_files().config_json.text();
  if (text.empty() || checkpoint.gguf() != nullptr) return 0;
  Memory account(AccountOf(memory));
  format::JsonTree tree(&account);
  QINFER_RETURN_IF_ERROR(tree.Parse(text, checkpoint.name()));
  return account.peak_bytes();
}

// Page tables grow by doubling from 16 pages; while one grows, old and new exist together.
uint64_t TableBytes(const std::vector<kv::GroupLayout>& groups, const kv::CacheOptions& options) {
  constexpr uint64_t kSmallest = 16, kEntry = sizeof(uint32_t) + sizeof(const uint8_t*);
  const uint64_t pages = CeilDiv<uint64_t>(options.max_tokens, kernels::kPageTokens);
  uint64_t capacity = kSmallest;
  while (capacity < pages) capacity *= 2;
  const uint64_t growing = capacity > kSmallest ? capacity / 2 : 0;
  const uint64_t others = (std::max<uint64_t>(options.max_sequences, 1) - 1) * kSmallest;
  return groups.size() * (capacity + growing + others) * kEntry;
}

}  // namespace

StatusOr<MemoryPlan> PlanMemory(const format::Checkpoint& checkpoint, const model::ModelSpec& spec,
                                const PlanOptions& options, const Context& context) {
  QINFER_RETURN_IF_ERROR(model::ValidateSpec(spec));
  MemoryPlan plan;
  plan.mapped_bytes = MappedBytes(checkpoint);
  size_t scratch = 0;
  uint32_t most_pieces = 0;
  for (size_t i = 0; i <= spec.layers.size(); ++i) {
    StatusOr<TensorSet> set =
        i == 0 ? TensorSet::PlanEnds(checkpoint, spec)
               : TensorSet::PlanLayer(checkpoint, spec, static_cast<uint32_t>(i - 1));
    if (!set.ok()) return set.status();
    plan.weight_bytes += set->allocated_bytes();
    scratch = std::max(scratch, set->scratch_bytes());
    most_pieces = std::max(most_pieces, set->pieces());
  }
  const uint64_t loader =
      most_pieces == 0 ? 0 : PieceLoader::PlanBytes(context, scratch, most_pieces);
  uint64_t text = 0, text_peak = 0, spec_bytes = 0;
  if (checkpoint.container() != format::Container::kConfigOnly) {
    Memory account(AccountOf(context.memory));
    QINFER_ASSIGN_OR_RETURN(const TextParts parts,
                            LoadTextParts(checkpoint, options.tokenizer, &account));
    text = account.used_bytes();
    text_peak = account.peak_bytes();
    QINFER_ASSIGN_OR_RETURN(spec_bytes, SpecBytes(checkpoint, context.memory));
  }
  plan.tokenizer_bytes = checkpoint.memory_bytes() + text;
  const uint64_t held = plan.mapped_bytes + checkpoint.memory_bytes() + plan.weight_bytes;
  plan.load_peak_bytes = held + std::max(loader, text_peak);
  plan.load_peak_bytes =
      std::max(plan.load_peak_bytes, plan.mapped_bytes + checkpoint.memory_bytes() + spec_bytes);
  if (checkpoint.gguf() != nullptr) {
    plan.load_peak_bytes = std::max(plan.load_peak_bytes, kGgufWindow);
  }
  if (options.verify && checkpoint.qinfer() != nullptr) {
    plan.load_peak_bytes =
        std::max(plan.load_peak_bytes,
                 plan.mapped_bytes + checkpoint.memory_bytes() + format::ChecksumPass::kPieceBytes);
  }

  kv::CacheOptions cache;
  cache.k_type = options.k_type;
  cache.v_type = options.v_type;
  cache.max_tokens = options.context_tokens != 0
                         ? options.context_tokens
                         : std::min<uint64_t>(spec.max_context, kDefaultContext);
  cache.max_sequences = options.max_sequences;
  cache.max_reserve = options.batch_tokens;
  const std::vector<kv::GroupLayout> groups = CacheLayout(spec, options.k_type, options.v_type);
  plan.kv_bytes = kv::Cache::PlanBytes(groups, cache);
  if (plan.kv_bytes == UINT64_MAX) {
    return BudgetError(StrCat("a KV cache of ", cache.max_tokens, " tokens is too large"));
  }
  plan.kv_bytes += TableBytes(groups, cache);
  ForwardOptions forward;
  forward.max_batch_tokens = options.batch_tokens;
  forward.max_logit_rows = options.logit_rows;
  forward.activations = options.activations;
  forward.determinism = options.determinism;
  forward.expanded_type = options.k_type;
  forward.max_position = LongestSequence(spec, cache.max_tokens);
  plan.workspace_bytes = Forward::PlanBytes(spec, forward, context);
  plan.total_bytes =
      std::max(plan.load_peak_bytes, held + text + plan.kv_bytes + plan.workspace_bytes);
  return plan;
}

}  // namespace qinfer::exec
