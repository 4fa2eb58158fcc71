// Sequences over pools: reserving, committing, forking, truncating and recycling. Everything that
// can fail is checked before the first change, so a failed call changes nothing.
#include "kv/cache.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "kv/page_pool.h"
#include "kv/page_table.h"

namespace qinfer::kv {
namespace {

using kernels::kPageTokens;

constexpr uint64_t kMaxTokens = 1u << 30;

// Pages that a group's pool gets.
uint64_t PoolPages(const GroupLayout& group, const CacheOptions& options) {
  const uint64_t sequences = std::max<uint32_t>(options.max_sequences, 1);
  const uint64_t all = CeilDiv<uint64_t>(options.max_tokens, kPageTokens) + sequences - 1;
  if (group.window == 0 || options.max_sequences == 0) return all;
  // A window may start and end inside a page, and a fork copies a page before it gives one back.
  const uint64_t each =
      CeilDiv<uint64_t>(uint64_t{group.window} + options.max_reserve, kPageTokens) + 2;
  return std::min(all, sequences * each);
}

// The first page that a query at `position` can still see.
uint32_t FirstVisiblePage(const GroupLayout& group, uint32_t position) {
  return kernels::FirstKey(position, group.window) / kPageTokens;
}

class CacheImpl;

class SequenceImpl final : public Sequence {
 public:
  SequenceImpl(std::shared_ptr<CacheImpl> cache, size_t groups)
      : cache_(std::move(cache)), tables_(groups) {}
  ~SequenceImpl() override;
  const Cache& cache() const override;
  uint32_t length() const override { return length_; }
  uint32_t variant() const override { return variant_; }
  void set_variant(uint32_t variant) override {
    if (length_ == 0) variant_ = variant;
  }
  Status Reserve(uint32_t count) override;
  void Commit(uint32_t count) override;
  void Rollback() override;
  Status Truncate(uint32_t length) override;
  StatusOr<std::unique_ptr<Sequence>> Fork() const override;
  absl::Span<const uint8_t* const> Pages(uint32_t group, uint32_t* first_page) const override;
  uint8_t* PageForWrite(uint32_t group, uint32_t position) override;

 private:
  // Drops pages from `end_page` on.
  void DropFrom(uint32_t group, uint32_t end_page);

  std::shared_ptr<CacheImpl> cache_;
  std::vector<PageTable> tables_;
  uint32_t length_ = 0, reserved_ = 0, variant_ = 0;
};

class CacheImpl final : public Cache, public std::enable_shared_from_this<CacheImpl> {
 public:
  CacheImpl(std::vector<GroupLayout> groups, const CacheOptions& options, Memory* memory)
      : groups_(std::move(groups)), options_(options), memory_(memory), pools_(groups_.size()) {}
  Status Init() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      QINFER_RETURN_IF_ERROR(pools_[i].Init(static_cast<uint32_t>(PoolPages(groups_[i], options_)),
                                            groups_[i].page_bytes,
                                            static_cast<uint8_t>(options_.k_type), memory_));
    }
    return OkStatus();
  }
  StatusOr<std::unique_ptr<Sequence>> NewSequence() override {
    return std::unique_ptr<Sequence>(
        std::make_unique<SequenceImpl>(shared_from_this(), groups_.size()));
  }
  absl::Span<const GroupLayout> groups() const override { return groups_; }
  const CacheOptions& options() const override { return options_; }
  uint64_t free_pages(uint32_t group) const override { return pools_[group].free_pages(); }

  PagePool& pool(size_t group) { return pools_[group]; }
  Memory* memory() { return memory_; }

 private:
  std::vector<GroupLayout> groups_;
  CacheOptions options_;
  Memory* memory_;
  std::vector<PagePool> pools_;
};

SequenceImpl::~SequenceImpl() {
  for (uint32_t g = 0; g < tables_.size(); ++g) DropFrom(g, tables_[g].first_page());
}

const Cache& SequenceImpl::cache() const { return *cache_; }

void SequenceImpl::DropFrom(uint32_t group, uint32_t end_page) {
  PageTable& table = tables_[group];
  while (table.count() > 0 && table.end_page() > end_page) {
    cache_->pool(group).DropReference(table.id(table.end_page() - 1));
    table.RemoveLast();
  }
}

Status SequenceImpl::Reserve(uint32_t count) {
  const uint64_t end = uint64_t{length_} + reserved_ + count;
  if (end > kMaxTokens) {
    return BudgetError(StrCat("a sequence of ", end, " tokens is longer than ", kMaxTokens));
  }
  if (count == 0) return OkStatus();
  const uint32_t end_page = static_cast<uint32_t>(CeilDiv<uint64_t>(end, kPageTokens));
  const uint32_t write_page = length_ / kPageTokens;  // the one page that may be half full
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    PageTable& table = tables_[g];
    uint64_t needed = end_page - table.end_page();
    const bool copies =
        write_page < table.end_page() && cache_->pool(g).header(table.id(write_page)).ref_count > 1;
    needed += copies ? 1 : 0;
    if (needed > cache_->pool(g).free_pages()) {
      return BudgetError(StrCat("the KV cache is full: ", needed, " more pages of ", kPageTokens,
                                " tokens are needed for ", count, " tokens, ",
                                cache_->pool(g).free_pages(),
                                " are free; make it larger (context tokens) or shorten sequences"));
    }
  }
  for (PageTable& table : tables_) {
    QINFER_RETURN_IF_ERROR(table.Grow(end_page - table.first_page(), cache_->memory()));
  }
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    PageTable& table = tables_[g];
    PagePool& pool = cache_->pool(g);
    if (write_page < table.end_page() && pool.header(table.id(write_page)).ref_count > 1) {
      const uint32_t copy = pool.Copy(table.id(write_page));
      table.Replace(write_page, copy, pool.data(copy));
    }
    while (table.end_page() < end_page) {
      const uint32_t page = pool.Take();
      table.Append(page, pool.data(page));
      // The pages before it are full before anybody reads them.
      if (table.end_page() == end_page && end % kPageTokens != 0) pool.Initialize(page);
    }
  }
  reserved_ += count;
  return OkStatus();
}

void SequenceImpl::Commit(uint32_t count) {
  count = std::min(count, reserved_);
  const uint32_t begin = length_;
  length_ += count;
  reserved_ -= count;
  for (uint32_t g = 0; g < tables_.size(); ++g) {
    PageTable& table = tables_[g];
    PagePool& pool = cache_->pool(g);
    for (uint32_t page = begin / kPageTokens; page * kPageTokens < length_; ++page) {
      PageHeader& header = pool.header(table.id(page));
      header.token_count =
          static_cast<uint16_t>(std::min(length_ - page * kPageTokens, kPageTokens));
      if (header.token_count == kPageTokens) header.initialized = 1;
    }
    const uint32_t first = FirstVisiblePage(cache_->groups()[g], length_);
    uint32_t recycled = 0;
    while (table.first_page() + recycled < first && recycled < table.count()) {
      pool.DropReference(table.id(table.first_page() + recycled));
      ++recycled;
    }
    if (recycled > 0) table.RemoveFirst(recycled);
    // A window of one token can let go of everything: the next page is still the right one.
    if (table.count() == 0) table.StartAt(CeilDiv(length_, kPageTokens));
  }
}

void SequenceImpl::Rollback() {
  reserved_ = 0;
  for (uint32_t g = 0; g < tables_.size(); ++g) DropFrom(g, CeilDiv(length_, kPageTokens));
}

Status SequenceImpl::Truncate(uint32_t length) {
  if (length > length_) {
    return MisuseError(
        StrCat("cannot truncate a sequence of ", length_, " tokens to ", length, " tokens"));
  }
  if (length < length_) {
    for (uint32_t g = 0; g < tables_.size(); ++g) {
      // The pages that position `length` would see, and the one it would be written to.
      if (FirstVisiblePage(cache_->groups()[g], length) < tables_[g].first_page()) {
        return MisuseError(StrCat("cannot truncate to ", length, " tokens: a window of ",
                                  cache_->groups()[g].window,
                                  " tokens has already recycled pages before position ",
                                  tables_[g].first_page() * kPageTokens, "; start again"));
      }
    }
  }
  length_ = length;
  Rollback();
  if (length_ % kPageTokens != 0) {
    for (uint32_t g = 0; g < tables_.size(); ++g) {
      PageHeader& header = cache_->pool(g).header(tables_[g].id(length_ / kPageTokens));
      if (header.ref_count == 1) header.token_count = static_cast<uint16_t>(length_ % kPageTokens);
    }
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Sequence>> SequenceImpl::Fork() const {
  auto fork = std::make_unique<SequenceImpl>(cache_, tables_.size());
  const uint32_t end_page = CeilDiv(length_, kPageTokens);
  for (size_t g = 0; g < tables_.size(); ++g) {
    const PageTable& from = tables_[g];
    PageTable& to = fork->tables_[g];
    to.StartAt(from.first_page());
    QINFER_RETURN_IF_ERROR(to.Grow(from.count(), cache_->memory()));
    for (uint32_t page = from.first_page(); page < std::min(end_page, from.end_page()); ++page) {
      cache_->pool(g).AddReference(from.id(page));
      to.Append(from.id(page), cache_->pool(g).data(from.id(page)));
    }
  }
  fork->length_ = length_;
  fork->variant_ = variant_;
  return std::unique_ptr<Sequence>(std::move(fork));
}

absl::Span<const uint8_t* const> SequenceImpl::Pages(uint32_t group, uint32_t* first_page) const {
  const PageTable& table = tables_[group];
  *first_page = table.first_page();
  return absl::MakeConstSpan(table.pointers(), table.count());
}

uint8_t* SequenceImpl::PageForWrite(uint32_t group, uint32_t position) {
  return cache_->pool(group).data(tables_[group].id(position / kPageTokens));
}

}  // namespace

size_t GroupLayout::KOffset(uint32_t layer_index, uint32_t head) const {
  return (size_t{layer_index} * kv_heads + head) * (k_plane_bytes + v_plane_bytes);
}
size_t GroupLayout::VOffset(uint32_t layer_index, uint32_t head) const {
  return KOffset(layer_index, head) + k_plane_bytes;
}

StatusOr<std::shared_ptr<Cache>> Cache::Create(std::vector<GroupLayout> groups,
                                               const CacheOptions& options, Memory* memory) {
  if (options.max_tokens == 0 || options.max_tokens > kMaxTokens) {
    return MisuseError(StrCat("a KV cache of ", options.max_tokens, " tokens; 1 to ", kMaxTokens,
                              " are possible"));
  }
  if (options.max_sequences > kMaxTokens) {
    return MisuseError(StrCat("a KV cache for ", options.max_sequences, " sequences"));
  }
  for (const GroupLayout& group : groups) {
    uint64_t bytes = 0;
    if (!PagePool::PlanBytes(PoolPages(group, options), group.page_bytes, &bytes) ||
        bytes > SIZE_MAX / 2) {
      return BudgetError(StrCat("a KV cache of ", options.max_tokens, " tokens is too large"));
    }
  }
  auto cache = std::make_shared<CacheImpl>(std::move(groups), options, memory);
  QINFER_RETURN_IF_ERROR(cache->Init());
  return std::shared_ptr<Cache>(std::move(cache));
}

uint64_t Cache::PlanBytes(absl::Span<const GroupLayout> groups, const CacheOptions& options) {
  uint64_t total = 0;
  for (const GroupLayout& group : groups) {
    uint64_t bytes = 0;
    if (!PagePool::PlanBytes(PoolPages(group, options), group.page_bytes, &bytes) ||
        !CheckedAdd(total, bytes, &total)) {
      return UINT64_MAX;
    }
  }
  return total;
}

}  // namespace qinfer::kv
