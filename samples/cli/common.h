// What the subcommands of the qinfer command share: owners of handles, errors as exceptions that
// main turns into exit codes, common options, progress on stderr. No subcommand lives here.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "interrupt.h"
#include "qinfer/qinfer.h"
#include "streams.h"

namespace cli {

// Ends the program with exit code 1 (2 for usage) and the message on stderr.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = 1)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Throws Error unless `status` is OK or a note; says which call failed and why.
qinfer_status Check(qinfer_status status, const qinfer_error& error, const char* what);

struct Deleter {
  void operator()(qinfer_runtime* handle) const { qinfer_runtime_release(handle); }
  void operator()(qinfer_model* handle) const { qinfer_model_release(handle); }
  void operator()(qinfer_calibration* handle) const { qinfer_calibration_release(handle); }
  void operator()(qinfer_engine* handle) const { qinfer_engine_release(handle); }
  void operator()(qinfer_session* handle) const { qinfer_session_release(handle); }
  void operator()(qinfer_task* handle) const { qinfer_task_release(handle); }
  void operator()(qinfer_report* handle) const { qinfer_report_release(handle); }
};
using Runtime = std::unique_ptr<qinfer_runtime, Deleter>;
using Model = std::unique_ptr<qinfer_model, Deleter>;
using Calibration = std::unique_ptr<qinfer_calibration, Deleter>;
using Engine = std::unique_ptr<qinfer_engine, Deleter>;
using Session = std::unique_ptr<qinfer_session, Deleter>;
using Task = std::unique_ptr<qinfer_task, Deleter>;
using Report = std::unique_ptr<qinfer_report, Deleter>;

inline qinfer_str Str(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view View(qinfer_str text) { return {text.data, text.size}; }

inline constexpr const char* kModelHelp = "A folder, .safetensors, .gguf or .qinfer file";

// Options that mean the same in every subcommand; each adds those that it understands.
struct Common {
  bool json = false;
  uint32_t threads = 0;
  std::string isa = "auto";
  std::string kv;
  std::string activations = "auto";
  std::string determinism = "strict";
  std::string load = "map";
  uint64_t context = 0;
};
void AddJson(CLI::App* app, Common* common);
void AddMachine(CLI::App* app, Common* common);  // --threads, --isa
void AddLoad(CLI::App* app, Common* common);     // --load
void AddEngine(CLI::App* app, Common* common);   // --kv, --activations
void AddDeterminism(CLI::App* app, Common* common);
void AddContext(CLI::App* app, Common* common, const char* help);

Runtime MakeRuntime(const Common& common);
Model OpenModel(qinfer_runtime* runtime, const std::string& path, const Common& common,
                uint32_t parts);
uint32_t KvType(const std::string& name);  // "" = default
uint32_t ActivationType(const std::string& name);
uint32_t DeterminismType(const std::string& name);
Engine MakeEngine(qinfer_model* model, const Common& common, uint32_t max_sessions = 1);

// A whole number of the type, in decimal; CLI11 alone takes what wraps around or is cut off.
template <typename T>
CLI::Validator Whole() {
  const auto read = [](std::string& text) {
    T value = 0;
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) {
      return "'" + text + "' is not a whole number from " +
             std::to_string(std::numeric_limits<T>::min()) + " to " +
             std::to_string(std::numeric_limits<T>::max());
    }
    text = std::to_string(value);
    return std::string();
  };
  return CLI::Validator(read, "");
}

// Runs a task to its end with progress on stderr: a bar on a terminal, elsewhere a line for a phase
// and every 10 seconds; silent with `quiet`. A signal cancels.
void Run(qinfer_task* task, const char* title, bool quiet);
Report TakeReport(qinfer_task* task);
std::string Render(qinfer_report* report, uint32_t form);
double Number(const qinfer_report* report, const std::string& path, double otherwise = 0.0);
std::string Text(const qinfer_report* report, const std::string& path);
size_t Count(const qinfer_report* report, const std::string& path);

std::vector<int32_t> Encode(const qinfer_model* model, std::string_view text, uint64_t flags);
// The prompt that a chat template makes; `model` may be null where `options` names a template.
std::string RenderPrompt(qinfer_runtime* runtime, const qinfer_model* model,
                         const qinfer_render_options& options);
std::string ReadFile(const std::string& path);  // "-" = standard input

// What a command reads or writes, by the word of the command line that names it.
struct NamedPath {
  const char* option;
  const std::string& path;  // empty = not given
};
// Throws Error where an output would replace an input, or another output. An input may be a model's
// folder: then the model's files in it.
void RefuseOverlap(std::initializer_list<NamedPath> outputs,
                   std::initializer_list<NamedPath> inputs);

// Throws Error where the name is empty.
void RequireName(const char* option, const std::string& path);

// Throws Error where a file is expected that is opened more than once.
void RefusePipe(const char* option, const std::string& path);

// A file that is written beside its name and takes it when it is complete; what is not a regular
// file is written as it is. A wrong path is known before the work is done, but the file is there
// only from the first Write on: which is to happen, like all up to Commit, within an
// InterruptGuard.
class OutFile {
 public:
  enum class Kind : uint8_t { kStream, kSeekable };  // kSeekable: for WriteAt; no pipe
  explicit OutFile(const std::string& path, Kind kind = Kind::kStream);
  ~OutFile();
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  // False where writing failed; Commit then says why.
  bool Write(const void* data, size_t size);
  bool WriteAt(uint64_t offset, const void* data, size_t size);
  void Commit();  // throws Error
  bool failed() const { return error_ != 0; }

 private:
  void Note(bool ok);
  bool Begin();
  std::string path_, written_;  // written_: the name until Commit
  std::FILE* file_ = nullptr;
  int error_ = 0;  // the first one
};

std::string Bytes(uint64_t bytes);             // "98.4 MB"
uint64_t ParseBytes(const std::string& text);  // "2GiB", "500M", "1024"

// One per source file; each adds its subcommands to `app`.
void AddInspect(CLI::App* app);
void AddText(CLI::App* app);
void AddGenerate(CLI::App* app);
void AddChat(CLI::App* app);
void AddQuantize(CLI::App* app);
void AddPerplexity(CLI::App* app);
void AddBench(CLI::App* app);
void AddCompletion(CLI::App* app);

}  // namespace cli
