// Signals that ask the program to end; see interrupt.h.
#include "interrupt.h"

#include <string>

#include "common.h"

namespace cli {
namespace {

volatile sig_atomic_t seen = 0;  // the signal
int guards = 0;

void Note(int signal, struct sigaction* old) {
  sigaction(signal, nullptr, old);
  if (old->sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = [](int number) { seen = number; };
  sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard(Signals signals) : signals_(signals) {
  if (guards++ == 0) seen = 0;
  Note(SIGINT, &old_int_);
  if (signals_ != Signals::kAll) return;
  Note(SIGTERM, &old_term_);
  Note(SIGHUP, &old_hup_);
}

InterruptGuard::~InterruptGuard() {
  --guards;
  sigaction(SIGINT, &old_int_, nullptr);
  if (signals_ != Signals::kAll) return;
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGHUP, &old_hup_, nullptr);
}

bool InterruptGuard::Seen() { return seen != 0; }
void InterruptGuard::Clear() { seen = 0; }

void InterruptGuard::ThrowIfSeen(const char* title) {
  if (Seen()) throw Error(std::string(title) + ": interrupted", 128 + seen);
}

}  // namespace cli
