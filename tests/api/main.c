/* Runs the groups of tests of the C API: all, or the one that is named. Exit code 77: skipped,
 * since the sample model is absent. */
#include "harness.h"

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
    int needs_model;
  } groups[] = {
      {"lifecycle", test_lifecycle, 1},
      {"options", test_options, 1},
      {"errors", test_errors, 0},
      {"tasks", test_tasks, 1},
      {"threads", test_threads, 1},
      {"host_threads", test_host_threads, 1},
      {"hooks", test_hooks, 1},
      {"text", test_text, 1},
      {"sessions", test_sessions, 1},
      {"quantize", test_quantize, 1},
      {"experts", test_experts, 0},
      {"reasoning", test_reasoning, 1},
      {"lookup", test_lookup, 1},
      {"outputs", test_output_values, 0},
      {"verified_load", test_verified_load, 1},
  };
  size_t i;
  int ran = 0;
  for (i = 0; i < sizeof groups / sizeof groups[0]; ++i) {
    if (argc > 1 && strcmp(argv[1], groups[i].name) != 0) continue;
    if (groups[i].needs_model && model_path() == NULL) {
      printf("%s: skipped, no test model\n", groups[i].name);
      if (argc > 1) return 77;
      continue;
    }
    groups[i].run();
    printf("%s: %s\n", groups[i].name, failures == 0 ? "passed" : "FAILED");
    ++ran;
  }
  return failures != 0 || ran == 0;
}
