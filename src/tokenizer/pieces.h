// Long work cut into pieces: a loop that goes on where it stopped, a sort that does, and a list
// whose growth is no long piece. How large a piece is, is for the caller: about 0.2 ms of work is
// right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/status.h"

namespace qinfer::tokenizer {

// Calls `each(i)`, which returns a Status, for at most `piece` more of [0, count), from *at on;
// true when all are done.
template <typename Each>
StatusOr<bool> SomeOf(size_t count, size_t piece, size_t* at, Each&& each) {
  const size_t end = count - *at < piece ? count : *at + piece;
  for (; *at < end; ++*at) QINFER_RETURN_IF_ERROR(each(*at));
  return *at == count;
}

// A list that grows without moving what it holds.
template <typename T>
class ChunkList {
 public:
  explicit ChunkList(Memory* memory) : chunks_(memory) {}
  void push_back(const T& value) {
    if (size_ % kChunk == 0) chunks_.emplace_back().reserve(kChunk);
    chunks_.back().push_back(value);
    ++size_;
  }
  const T& operator[](size_t index) const { return chunks_[index / kChunk][index % kChunk]; }
  size_t size() const { return size_; }
  void clear() {
    chunks_.clear();
    size_ = 0;
  }

 private:
  static constexpr size_t kChunk = 4096;
  std::pmr::vector<std::pmr::vector<T>> chunks_;
  size_t size_ = 0;
};

// A merge sort, done by calling Step until it says true.
template <typename T, typename Less>
class PieceSort {
 public:
  PieceSort(std::pmr::vector<T>* values, Memory* memory, Less less)
      : values_(values), merged_(memory), less_(std::move(less)) {}

  bool Step() {
    const size_t count = values_->size();
    if (width_ == 0) {
      const size_t end = std::min(count, at_ + kRun);
      std::sort(Iterator(at_), Iterator(end), less_);
      at_ = end;
      if (at_ == count) NextWidth(kRun);
      return width_ >= count;
    }
    for (size_t piece = 0; piece < kPiece && at_ < count; ++piece) {
      if (at_ == end_) NextPair();
      const bool second =
          left_ == middle_ || (right_ < end_ && less_((*values_)[right_], (*values_)[left_]));
      merged_.push_back((*values_)[second ? right_++ : left_++]);
      ++at_;
    }
    if (at_ == count) {
      values_->swap(merged_);
      NextWidth(2 * width_);
    }
    return width_ >= count;
  }

 private:
  static constexpr size_t kRun = 1024, kPiece = 8192;

  auto Iterator(size_t at) { return values_->begin() + static_cast<ptrdiff_t>(at); }
  // Runs of `width` are sorted.
  void NextWidth(size_t width) {
    width_ = width;
    at_ = end_ = 0;
    merged_.clear();
    if (width < values_->size()) merged_.reserve(values_->size());
  }
  void NextPair() {
    const size_t count = values_->size();
    left_ = at_;
    middle_ = right_ = std::min(count, at_ + width_);
    end_ = std::min(count, middle_ + width_);
  }

  std::pmr::vector<T>* values_;
  std::pmr::vector<T> merged_;
  Less less_;
  size_t width_ = 0, at_ = 0;
  size_t left_ = 0, middle_ = 0, right_ = 0, end_ = 0;  // of the pair of runs that is being merged
};

}  // namespace qinfer::tokenizer
