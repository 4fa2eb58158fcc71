// OUT.partial/ on a POSIX file system.
#include "quant/partial_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/folder.h"
#include "io/posix.h"
#include "quant/bytes.h"
#include "quant/fingerprint.h"

namespace qinfer::quant {
namespace {

constexpr char kMagic[8] = {'Q', 'I', 'N', 'F', 'J', 'R', 'N', '1'};
constexpr size_t kHeaderBytes = sizeof(kMagic) + sizeof(uint64_t);
constexpr uint64_t kMaxJournalBytes = 1ull << 30;
constexpr uint64_t kMaxFileBytes = 8ull << 30;
constexpr const char* kData = "model.qinfer";
constexpr const char* kJournal = "journal";
constexpr const char* kStatePrefix = "state-";  // of the small files
constexpr size_t kMaxNames = 1000;

class PartialStoreImpl final : public PartialStore {
 public:
  explicit PartialStoreImpl(std::string output)
      : output_(std::move(output)), folder_(output_ + ".partial") {}

  ~PartialStoreImpl() override {
    if (opened_ && !committed_ && !keep_) RemoveFolder();
  }

  Status Begin(uint64_t fingerprint, bool resume) {
    QINFER_RETURN_IF_ERROR(OpenFolder());
    QINFER_RETURN_IF_ERROR(OpenJournal());
    const std::string journal = io::JoinPath(folder_, kJournal);
    QINFER_ASSIGN_OR_RETURN(const bool earlier, BelongsToARun(journal));
    bool found = false;
    if (earlier && resume) {
      QINFER_RETURN_IF_ERROR(ReadJournal(journal, fingerprint));
      found = true;
    }
    QINFER_RETURN_IF_ERROR(CheckOneName(kData));
    opened_ = true;
    keep_ = found;  // an earlier run's work is not lost because this one cannot begin
    if (!found) {
      // Whenever this is interrupted, the journal is one of ours and claims nothing that is gone.
      const off_t kept = earlier ? static_cast<off_t>(kHeaderBytes) : 0;
      if (ftruncate(journal_.get(), kept) != 0) return io::SystemError("truncate", journal, errno);
      RemoveState();
      unlinkat(handle_.get(), kData, 0);
      ByteWriter header;
      header.PutBytes(kMagic, sizeof(kMagic));
      header.Put(fingerprint);
      QINFER_RETURN_IF_ERROR(io::WriteFully(journal_.get(), journal, 0, AsBytes(header.bytes())));
      if (fdatasync(journal_.get()) != 0) return io::SystemError("sync", journal, errno);
      journal_end_ = kHeaderBytes;
    }
    data_ = OpenInside(kData, O_RDWR | O_CREAT);
    if (!data_.valid()) return io::SystemError("open", io::JoinPath(folder_, kData), errno);
    return OkStatus();
  }

  const std::vector<std::string>& groups() const override { return groups_; }

  Status AppendGroup(std::string_view record) override {
    if (fdatasync(data_.get()) != 0) return io::SystemError("sync", folder_, errno);
    ByteWriter out;
    out.Put(static_cast<uint64_t>(record.size()));
    out.Put(HashText(record));
    out.PutBytes(record.data(), record.size());
    QINFER_RETURN_IF_ERROR(io::WriteFully(journal_.get(), io::JoinPath(folder_, kJournal),
                                          journal_end_, AsBytes(out.bytes())));
    if (fdatasync(journal_.get()) != 0) return io::SystemError("sync", folder_, errno);
    journal_end_ += out.bytes().size();
    return OkStatus();
  }

  Status KeepGroups(size_t count) override {
    if (count >= groups_.size()) return OkStatus();
    groups_.resize(count);
    ends_.resize(count);
    journal_end_ = count == 0 ? kHeaderBytes : ends_.back();
    if (ftruncate(journal_.get(), static_cast<off_t>(journal_end_)) != 0) {
      return io::SystemError("truncate", io::JoinPath(folder_, kJournal), errno);
    }
    return OkStatus();
  }

  std::unique_ptr<io::Sink> OpenSink() override { return std::make_unique<StoreSink>(this); }

  StatusOr<bool> ReadBack(uint64_t offset, absl::Span<uint8_t> out) const override {
    const std::string path = io::JoinPath(folder_, kData);
    struct stat info;
    if (fstat(data_.get(), &info) != 0) return io::SystemError("look at", path, errno);
    const auto size = static_cast<uint64_t>(info.st_size);
    if (offset > size || out.size() > size - offset) return false;
    QINFER_RETURN_IF_ERROR(io::ReadFully(data_.get(), path, offset, out.data(), out.size()));
    return true;
  }

  Status SaveFile(const std::string& name, const NextPiece& next) override {
    const std::string kept = StrCat(kStatePrefix, name), fresh = kept + ".new";
    const std::string path = io::JoinPath(folder_, kept);
    {
      unlinkat(handle_.get(), fresh.c_str(), 0);  // what a crash has left, whatever else it names
      const io::Descriptor file = OpenInside(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL);
      if (!file.valid()) return io::SystemError("open", path, errno);
      uint64_t at = 0;
      for (absl::Span<const uint8_t> piece = next(); !piece.empty(); piece = next()) {
        QINFER_RETURN_IF_ERROR(io::WriteFully(file.get(), path, at, piece));
        at += piece.size();
      }
      if (fdatasync(file.get()) != 0) return io::SystemError("sync", path, errno);
    }
    if (renameat(handle_.get(), fresh.c_str(), handle_.get(), kept.c_str()) != 0) {
      return io::SystemError("rename", path, errno);
    }
    return OkStatus();
  }

  StatusOr<std::string> LoadFile(const std::string& name) const override {
    const std::string path = io::JoinPath(folder_, StrCat(kStatePrefix, name));
    QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(path));
    if (kind == io::PathKind::kMissing) return std::string();
    return io::ReadSmallFile(path, kMaxFileBytes);
  }

  StatusOr<uint64_t> FileSize(const std::string& name) const override {
    const std::string kept = StrCat(kStatePrefix, name);
    struct stat info;
    if (fstatat(handle_.get(), kept.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return uint64_t{0};
      return io::SystemError("look at", io::JoinPath(folder_, kept), errno);
    }
    return S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : uint64_t{0};
  }

  Status ReadFile(const std::string& name, uint64_t offset,
                  absl::Span<uint8_t> out) const override {
    const std::string kept = StrCat(kStatePrefix, name), path = io::JoinPath(folder_, kept);
    const io::Descriptor file = OpenInside(kept.c_str(), O_RDONLY);
    if (!file.valid()) return io::SystemError("open", path, errno);
    return io::ReadFully(file.get(), path, offset, out.data(), out.size());
  }

  void RemoveFile(const std::string& name) override {
    unlinkat(handle_.get(), StrCat(kStatePrefix, name).c_str(), 0);
  }

  void set_keep(bool keep) override { keep_ = keep; }

 private:
  class StoreSink final : public io::Sink {
   public:
    explicit StoreSink(PartialStoreImpl* store) : store_(store) {}
    const std::string& name() const override { return store_->output_; }
    Status WriteAt(uint64_t offset, absl::Span<const uint8_t> bytes) override {
      store_->data_end_ = std::max<uint64_t>(store_->data_end_, offset + bytes.size());
      return io::WriteFully(store_->data_.get(), store_->output_, offset, bytes);
    }
    Status Commit() override { return store_->Commit(); }

   private:
    PartialStoreImpl* store_;
  };

  // Makes the folder, or takes one that an earlier run has left. A link is not followed and what is
  // not ours is not touched: removing the folder later must cost nobody a file.
  Status OpenFolder() {
    if (mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST) {
      return io::SystemError("make the folder", folder_, errno);
    }
    handle_ =
        io::Descriptor(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!handle_.valid() && errno != ENOTDIR && errno != ELOOP) {
      return io::SystemError("open", folder_, errno);
    }
    if (!handle_.valid()) {
      return MisuseError(StrCat(folder_,
                                " is in the way: the work is kept in a folder of that name, and "
                                "this is a link or a file; remove it or choose another output"));
    }
    QINFER_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            io::ListFolder(folder_, kMaxNames));
    for (const std::string& name : names) {
      if (!IsOurs(name)) return NotOurs(name);
      has_journal_ |= name == kJournal;
      if (name != kJournal) other_ = name;
    }
    return OkStatus();
  }

  Status NotOurs(const std::string& name) const {
    return MisuseError(StrCat(folder_, " holds ", name,
                              ", which no quantization has put there; move it away or choose "
                              "another output"));
  }

  // Where there are files without a journal, none is made: another's names may be like ours.
  Status OpenJournal() {
    const std::string path = io::JoinPath(folder_, kJournal);
    if (!has_journal_ && !other_.empty()) return NotOurs(other_);
    QINFER_RETURN_IF_ERROR(CheckOneName(kJournal));
    journal_ = OpenInside(kJournal, O_RDWR | O_CREAT);
    if (!journal_.valid()) return io::SystemError("open", path, errno);
    if (flock(journal_.get(), LOCK_EX | LOCK_NB) != 0) {
      return BusyError(StrCat("another process is writing ", output_));
    }
    return OkStatus();
  }

  // A regular file with this one name, or none: nothing is written through a second name.
  Status CheckOneName(const char* name) const {
    const std::string path = io::JoinPath(folder_, name);
    struct stat info;
    if (fstatat(handle_.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? OkStatus() : io::SystemError("look at", path, errno);
    }
    if (S_ISREG(info.st_mode) && info.st_nlink == 1) return OkStatus();
    return MisuseError(StrCat(path,
                              S_ISREG(info.st_mode) ? " has another name as well (a hard link)"
                                                    : " is not a regular file",
                              "; move it away or choose another output"));
  }

  // Whether an earlier run has begun a journal; one that a crash has cut at its very beginning, in
  // an otherwise empty folder, is as good as none.
  StatusOr<bool> BelongsToARun(const std::string& path) const {
    struct stat info;
    if (fstat(journal_.get(), &info) != 0) return io::SystemError("look at", path, errno);
    uint8_t begin[kHeaderBytes] = {};
    const size_t size = std::min<uint64_t>(static_cast<uint64_t>(info.st_size), kHeaderBytes);
    QINFER_RETURN_IF_ERROR(io::ReadFully(journal_.get(), path, 0, begin, size));
    const bool ours = std::memcmp(begin, kMagic, std::min(size, sizeof(kMagic))) == 0;
    if (ours && size == kHeaderBytes) return true;
    if (ours && other_.empty()) return false;
    return FormatError(StrCat(path, " is not a journal of a quantization, or is damaged: move ",
                              folder_, " away or choose another output"));
  }

  static bool IsOurs(const std::string& name) {
    return name == kData || name == kJournal || name.rfind(kStatePrefix, 0) == 0;
  }

  io::Descriptor OpenInside(const char* name, int flags) const {
    return io::Descriptor(openat(handle_.get(), name, flags | O_NOFOLLOW | O_CLOEXEC, 0666));
  }

  // Of this run, or it is a MisuseError; a cut or damaged record ends it.
  Status ReadJournal(const std::string& path, uint64_t fingerprint) {
    struct stat info;
    if (fstat(journal_.get(), &info) != 0) return io::SystemError("look at", path, errno);
    const uint64_t size = static_cast<uint64_t>(info.st_size);
    if (size > kMaxJournalBytes) {
      return FormatError(StrCat(path, " has ", size,
                                " bytes, more than any journal: run without "
                                "resume to start anew"));
    }
    std::string bytes(size, '\0');
    QINFER_RETURN_IF_ERROR(io::ReadFully(journal_.get(), path, 0,
                                         reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()));
    ByteReader in(bytes, path);
    uint64_t magic = 0, theirs = 0;
    QINFER_RETURN_IF_ERROR(in.Get(&magic));
    QINFER_RETURN_IF_ERROR(in.Get(&theirs));
    if (theirs != fingerprint) {
      return MisuseError(StrCat(folder_,
                                " holds the state of another quantization (other model, "
                                "recipe, calibration or options): repeat that one to resume it, or "
                                "run without resume to start anew"));
    }
    journal_end_ = kHeaderBytes;
    while (in.remaining() >= 2 * sizeof(uint64_t)) {
      uint64_t length = 0, hash = 0;
      QINFER_RETURN_IF_ERROR(in.Get(&length));
      QINFER_RETURN_IF_ERROR(in.Get(&hash));
      if (length > in.remaining()) break;
      std::string record(length, '\0');
      QINFER_RETURN_IF_ERROR(in.GetBytes(record.data(), length));
      if (HashText(record) != hash) break;
      groups_.push_back(std::move(record));
      journal_end_ = in.offset();
      ends_.push_back(journal_end_);
    }
    if (ftruncate(journal_.get(), static_cast<off_t>(journal_end_)) != 0) {
      return io::SystemError("truncate", path, errno);
    }
    return OkStatus();
  }

  Status Commit() {
    const std::string data = io::JoinPath(folder_, kData);
    if (ftruncate(data_.get(), static_cast<off_t>(data_end_)) != 0) {
      return io::SystemError("truncate", data, errno);
    }
    if (fsync(data_.get()) != 0) return io::SystemError("sync", data, errno);
    if (rename(data.c_str(), output_.c_str()) != 0) return io::SystemError("rename", data, errno);
    QINFER_RETURN_IF_ERROR(io::SyncFolder(io::FolderOf(output_)));
    committed_ = true;
    RemoveFolder();
    return OkStatus();
  }

  // Only files: nothing of ours makes folders inside.
  void RemoveState() {
    StatusOr<std::vector<std::string>> names = io::ListFolder(folder_, kMaxNames);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (IsOurs(name) && name != kData && name != kJournal) {
        unlinkat(handle_.get(), name.c_str(), 0);
      }
    }
  }
  void RemoveFolder() {
    RemoveState();
    unlinkat(handle_.get(), kData, 0);
    unlinkat(handle_.get(), kJournal, 0);
    rmdir(folder_.c_str());
  }

  const std::string output_, folder_;
  io::Descriptor handle_, journal_, data_;  // handle_: of the folder
  bool has_journal_ = false;
  std::string other_;  // a file beside the journal that was there before
  uint64_t journal_end_ = 0, data_end_ = 0;
  std::vector<std::string> groups_;
  std::vector<uint64_t> ends_;  // of their records, in the journal
  bool opened_ = false, committed_ = false, keep_ = false;
};

}  // namespace

Status PartialStore::SaveFile(const std::string& name, absl::Span<const uint8_t> bytes) {
  return SaveFile(name, [&bytes] { return std::exchange(bytes, {}); });
}

StatusOr<std::unique_ptr<PartialStore>> PartialStore::Open(const std::string& output_path,
                                                           uint64_t fingerprint, bool resume) {
  auto store = std::make_unique<PartialStoreImpl>(output_path);
  QINFER_RETURN_IF_ERROR(store->Begin(fingerprint, resume));
  return std::unique_ptr<PartialStore>(std::move(store));
}

}  // namespace qinfer::quant
