// Standard input, output and error as the program finds them: closed, full, without a reader, or a
// terminal, which obeys what stands in a text.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace cli {

// To be called before anything is opened: a file that took the number of a closed standard stream
// would receive what is meant for that. False where it cannot be helped.
bool TakeStandardStreams();

// Standard output takes no more. Not an Error: a conversation does not go on after it.
class OutputFailed : public std::exception {
 public:
  const char* what() const noexcept override { return "writing to standard output failed"; }
};

// Throws OutputFailed where something of what was printed up to now is lost.
void FlushOutput();
// The end of the program: `code`, or 1 where output is lost, which is said on stderr unless the
// reader went away on purpose.
int FinishOutput(int code);

// The text with control characters (C0, DEL, C1) and bytes that are not UTF-8 as "\x1b", but for
// those in `keep`. For what a file says in tables and messages for people.
std::string Visible(std::string_view text, std::string_view keep = "");
// A table of many lines.
inline std::string VisibleLines(std::string_view text) { return Visible(text, "\n"); }
// What a model or a template writes, for `stream`: as it is, and where that is a terminal, only
// lines and tabs control it.
std::string ForStream(std::string_view text, std::FILE* stream);

// A line on stderr, after what is on stdout.
void Complain(std::string_view message);

}  // namespace cli
