// The files of a calibration in progress: one that says where it is, with a checksum, and by turns
// one of two names each for statistics and hidden states.
#include "quant/calibration_keeper.h"

#include <algorithm>
#include <cstring>

#include "core/work.h"
#include "quant/bytes.h"
#include "quant/fingerprint.h"

namespace qinfer::quant {
namespace {

constexpr char kMagic[8] = {'Q', 'I', 'N', 'F', 'P', 'R', 'G', '1'};
constexpr const char* kFile = "calibrating";
constexpr uint64_t kMaxFileBytes = 1ull << 30;  // of kFile: tokens
// A save may take a part in this many of the time since the last.
constexpr uint64_t kShare = 20;

std::string StatsFile(uint32_t turn) { return StrCat("calibrating-stats-", turn % 2); }
std::string HiddenFile(uint32_t turn) { return StrCat("calibrating-hidden-", turn % 2); }

void PutSample(const Sample& sample, ByteWriter* out) {
  out->Put(static_cast<uint32_t>(sample.tokens.size()));
  out->PutBytes(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t));
}

Status GetSample(ByteReader* in, uint32_t vocab_size, Sample* sample) {
  uint32_t tokens = 0;
  QINFER_RETURN_IF_ERROR(in->Get(&tokens));
  if (tokens == 0 || tokens > in->remaining() / sizeof(int32_t))
    return FormatError("a sample does not fit");
  sample->tokens.resize(tokens);
  QINFER_RETURN_IF_ERROR(in->GetBytes(sample->tokens.data(), tokens * sizeof(int32_t)));
  for (const int32_t token : sample->tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
      return FormatError("a token is outside the vocabulary");
    }
  }
  return OkStatus();
}

// A count of things that take at least `each` bytes.
Status GetCount(ByteReader* in, size_t each, uint32_t* count) {
  QINFER_RETURN_IF_ERROR(in->Get(count));
  return *count <= in->remaining() / each ? OkStatus() : FormatError("a count does not fit");
}

void PutWritten(const WrittenSamples& written, ByteWriter* out) {
  out->Put(static_cast<uint8_t>(written.complete ? 1 : 0));
  out->Put(written.streams);
  out->Put(static_cast<uint32_t>(written.samples.size()));
  for (const Sample& sample : written.samples) PutSample(sample, out);
  out->Put(static_cast<uint32_t>(written.waiting.size()));
  for (const auto& [stream, sample] : written.waiting) {
    out->Put(stream);
    PutSample(sample, out);
  }
  out->Put(static_cast<uint32_t>(written.running.size()));
  for (const uint64_t stream : written.running) out->Put(stream);
}

Status GetWritten(ByteReader* in, uint32_t vocab_size, WrittenSamples* written) {
  uint8_t complete = 0;
  uint32_t count = 0;
  QINFER_RETURN_IF_ERROR(in->Get(&complete));
  written->complete = complete != 0;
  QINFER_RETURN_IF_ERROR(in->Get(&written->streams));
  QINFER_RETURN_IF_ERROR(GetCount(in, sizeof(uint32_t), &count));
  written->samples.resize(count);
  for (Sample& sample : written->samples) {
    QINFER_RETURN_IF_ERROR(GetSample(in, vocab_size, &sample));
  }
  QINFER_RETURN_IF_ERROR(GetCount(in, sizeof(uint64_t), &count));
  written->waiting.resize(count);
  for (auto& [stream, sample] : written->waiting) {
    QINFER_RETURN_IF_ERROR(in->Get(&stream));
    QINFER_RETURN_IF_ERROR(GetSample(in, vocab_size, &sample));
  }
  QINFER_RETURN_IF_ERROR(GetCount(in, sizeof(uint64_t), &count));
  written->running.resize(count);
  for (uint64_t& stream : written->running) QINFER_RETURN_IF_ERROR(in->Get(&stream));
  return OkStatus();
}

}  // namespace

CalibrationKeeper::CalibrationKeeper(PartialStore* store, uint64_t interval_ns)
    : store_(store), interval_ns_(interval_ns), next_ns_(NowNs() + interval_ns) {}

bool CalibrationKeeper::Due() const { return NowNs() >= next_ns_; }

// Input by input, so that no copy of all of them takes memory; the checksum is of the checksums.
Status CalibrationKeeper::SaveStats(const StatsTable& stats) {
  size_t next = 0;
  std::string piece;
  stats_hash_ = stats_bytes_ = 0;
  return store_->SaveFile(StatsFile(turn_), [&]() -> absl::Span<const uint8_t> {
    if (next == stats.size()) return {};
    const InputStats& input = stats[next++];
    ByteWriter body;
    body.Put(input.moments.tokens());
    body.PutBytes(input.moments.sums().data(), input.moments.channels() * sizeof(double));
    input.observer->Save(&body);
    ByteWriter out;
    out.PutString(body.bytes());
    piece = out.Take();
    stats_hash_ = HashBytes(piece.data(), piece.size(), stats_hash_);
    stats_bytes_ += piece.size();
    return AsBytes(piece);
  });
}

Status CalibrationKeeper::Save(const WrittenSamples& written, const CalibrationPosition& position,
                               const StatsTable& stats, absl::Span<const uint8_t> hidden) {
  const uint64_t begun = NowNs();
  ++turn_;
  QINFER_RETURN_IF_ERROR(SaveStats(stats));
  hidden_bytes_ = hidden.size();
  hidden_hash_ = HashBytes(hidden.data(), hidden.size());
  if (!hidden.empty()) QINFER_RETURN_IF_ERROR(store_->SaveFile(HiddenFile(turn_), hidden));
  ByteWriter body;
  body.Put(turn_);
  body.Put(static_cast<uint8_t>(position.in));
  body.Put(position.begin);
  body.Put(position.end);
  body.Put(position.at);
  body.Put(position.layer);
  body.Put(stats_bytes_);
  body.Put(stats_hash_);
  body.Put(hidden_bytes_);
  body.Put(hidden_hash_);
  PutWritten(written, &body);
  ByteWriter out;
  out.PutBytes(kMagic, sizeof(kMagic));
  out.Put(HashText(body.bytes()));
  out.PutBytes(body.bytes().data(), body.bytes().size());
  QINFER_RETURN_IF_ERROR(store_->SaveFile(kFile, AsBytes(out.bytes())));
  store_->RemoveFile(StatsFile(turn_ + 1));
  store_->RemoveFile(HiddenFile(turn_ + 1));
  const uint64_t now = NowNs();
  next_ns_ = interval_ns_ == 0 ? 0 : now + std::max(interval_ns_, (now - begun) * kShare);
  return OkStatus();
}

StatusOr<bool> CalibrationKeeper::Find(uint32_t vocab_size) {
  QINFER_ASSIGN_OR_RETURN(const uint64_t size, store_->FileSize(kFile));
  constexpr size_t kHeader = sizeof(kMagic) + sizeof(uint64_t);
  if (size < kHeader || size > kMaxFileBytes) return false;
  std::string bytes(size, '\0');
  QINFER_RETURN_IF_ERROR(
      store_->ReadFile(kFile, 0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + sizeof(kMagic), sizeof(checksum));
  const std::string_view body = std::string_view(bytes).substr(kHeader);
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0 || HashText(body) != checksum) {
    return false;
  }
  ByteReader in(body, kFile);
  uint8_t where = 0;
  const auto read = [&]() -> Status {
    QINFER_RETURN_IF_ERROR(in.Get(&turn_));
    QINFER_RETURN_IF_ERROR(in.Get(&where));
    QINFER_RETURN_IF_ERROR(in.Get(&position_.begin));
    QINFER_RETURN_IF_ERROR(in.Get(&position_.end));
    QINFER_RETURN_IF_ERROR(in.Get(&position_.at));
    QINFER_RETURN_IF_ERROR(in.Get(&position_.layer));
    QINFER_RETURN_IF_ERROR(in.Get(&stats_bytes_));
    QINFER_RETURN_IF_ERROR(in.Get(&stats_hash_));
    QINFER_RETURN_IF_ERROR(in.Get(&hidden_bytes_));
    QINFER_RETURN_IF_ERROR(in.Get(&hidden_hash_));
    return GetWritten(&in, vocab_size, &written_);
  };
  if (!read().ok() || where > static_cast<uint8_t>(CalibrationPosition::In::kHead)) return false;
  position_.in = static_cast<CalibrationPosition::In>(where);
  return true;
}

StatusOr<bool> CalibrationKeeper::LoadStats(StatsTable* stats) {
  const std::string file = StatsFile(turn_);
  QINFER_ASSIGN_OR_RETURN(const uint64_t size, store_->FileSize(file));
  if (size != stats_bytes_) return false;
  uint64_t at = 0, hash = 0;
  std::string piece;
  for (InputStats& input : *stats) {
    uint64_t length = 0;
    const uint64_t sums = input.moments.channels() * sizeof(double);
    if (size - at < sizeof(length)) return false;
    QINFER_RETURN_IF_ERROR(
        store_->ReadFile(file, at, {reinterpret_cast<uint8_t*>(&length), sizeof(length)}));
    // What an observer keeps is far below that.
    constexpr uint64_t kMostOfObserver = 1 << 20;
    if (length > size - at - sizeof(length) || length > sums + kMostOfObserver) return false;
    piece.resize(sizeof(length) + length);
    QINFER_RETURN_IF_ERROR(
        store_->ReadFile(file, at, {reinterpret_cast<uint8_t*>(piece.data()), piece.size()}));
    hash = HashBytes(piece.data(), piece.size(), hash);
    at += piece.size();
    ByteReader in(std::string_view(piece).substr(sizeof(length)), file);
    uint64_t tokens = 0;
    if (!in.Get(&tokens).ok() || !in.GetBytes(input.moments.mutable_sums()->data(), sums).ok() ||
        !input.observer->Load(&in).ok() || in.remaining() != 0) {
      return false;
    }
    input.moments.set_tokens(tokens);
  }
  return at == size && hash == stats_hash_;
}

StatusOr<bool> CalibrationKeeper::LoadHidden(absl::Span<uint8_t> hidden) {
  QINFER_ASSIGN_OR_RETURN(const uint64_t size, store_->FileSize(HiddenFile(turn_)));
  if (size != hidden.size() || size != hidden_bytes_) return false;
  QINFER_RETURN_IF_ERROR(store_->ReadFile(HiddenFile(turn_), 0, hidden));
  return HashBytes(hidden.data(), hidden.size()) == hidden_hash_;
}

void CalibrationKeeper::Remove() {
  for (const uint32_t turn : {0u, 1u}) {
    store_->RemoveFile(StatsFile(turn));
    store_->RemoveFile(HiddenFile(turn));
  }
  store_->RemoveFile(kFile);
}

}  // namespace qinfer::quant
