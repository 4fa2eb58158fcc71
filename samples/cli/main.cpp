// The qinfer command: parses the command line, runs a subcommand, and turns errors into a line on
// stderr and an exit code (1; 2 for usage).
#include <csignal>
#include <cstdio>
#include <sstream>

#include "common.h"

namespace {

bool HasCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == name) return true;
  }
  return false;
}

int Run(int argc, char** argv) {
  CLI::App app{"Quantized language models: inspect, convert, quantize, measure, generate."};
  app.name("qinfer");
  app.set_version_flag("--version", std::string("qinfer ") + qinfer_version_string());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  cli::AddInspect(&app);
  cli::AddText(&app);
  cli::AddGenerate(&app);
  cli::AddChat(&app);
  cli::AddQuantize(&app);
  cli::AddPerplexity(&app);
  cli::AddBench(&app);
  cli::AddCompletion(&app);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that passes `ulimit -f` is an error with a message
  std::signal(SIGPIPE, SIG_IGN);  // what cannot be written is seen where it is written
  int code = 0;
  try {
    if (argc > 1 && argv[1][0] != '-' && !HasCommand(app, argv[1])) {
      throw cli::Error(
          "there is no command '" + std::string(argv[1]) + "'; qinfer --help lists them", 2);
    }
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;
    code = app.exit(error, out, err) == 0 ? 0 : 2;
    std::fputs(out.str().c_str(), stdout);
    std::fputs(cli::VisibleLines(err.str()).c_str(), stderr);
  } catch (const cli::OutputFailed&) {
    // Said below.
  } catch (const cli::Error& error) {
    cli::Complain(error.what());
    code = error.exit_code();
  } catch (const std::exception& error) {
    cli::Complain(error.what());
    code = 1;
  }
  return cli::FinishOutput(code);
}

}  // namespace

int main(int argc, char** argv) {
  if (!cli::TakeStandardStreams()) return 1;
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // before a command runs, or while its end is told
    std::fputs("qinfer: ", stderr);
    std::fputs(error.what(), stderr);
    std::fputs("\n", stderr);
  }
  return 1;
}
