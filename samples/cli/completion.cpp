// qinfer completion: shell completion scripts for bash, zsh and fish, made from the command's own
// table of options.
#include <cstdio>

#include "common.h"

namespace cli {
namespace {

std::vector<std::string> OptionNames(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The words that an option takes, where it takes no others: CLI11 shows them as "TEXT:{a,b}". Empty
// where it takes files, numbers or text.
std::vector<std::string> Values(const CLI::Option* option) {
  // What also takes full names of formats, and so is not checked against a list.
  if (option->check_lname("scheme")) return {"int4", "int6", "int8", "fp4", "f16", "bf16", "f32"};
  if (option->check_lname("embedding")) return {"keep", "f16", "bf16", "f32", "int8"};
  if (option->check_lname("head")) return {"keep", "f16", "bf16", "f32", "int8", "int6", "int4"};
  const std::string type = option->get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  std::vector<std::string> words;
  if (begin == std::string::npos || end == std::string::npos) return words;
  words.emplace_back();
  for (const char c : type.substr(begin + 1, end - begin - 1)) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// Calls with what stands before the values on the command line: the option, or, where they are an
// argument, the command.
template <typename Body>
void ForEachValues(const CLI::App* sub, const Body& body) {
  for (const CLI::Option* option : sub->get_options()) {
    const std::vector<std::string> words = Values(option);
    if (words.empty()) continue;
    for (const std::string& name : option->get_lnames()) body("--" + name, words);
    if (option->get_positional()) body(sub->get_name(), words);
  }
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// Within single quotes of every one of the three shells.
std::string Quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted;
}

void PrintBash(const CLI::App* root) {
  std::vector<std::string> names;
  std::string cases, values;
  for (const CLI::App* sub : root->get_subcommands({})) {
    names.push_back(sub->get_name());
    cases += "    " + sub->get_name() + ") words='" + Join(OptionNames(sub)) + "' ;;\n";
    ForEachValues(sub, [&](const std::string& before, const std::vector<std::string>& words) {
      values += "    '" + sub->get_name() + " " + before + "') values='" + Join(words) + "' ;;\n";
    });
  }
  std::printf(
      "_qinfer() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words "
      "values=\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '%s' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  if [ \"$current\" = = ]; then\n"
      "    current=\n"
      "  elif [ \"$previous\" = = ]; then\n"
      "    previous=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]} $previous\" in\n%s"
      "  esac\n"
      "  if [ -n \"$values\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n%s"
      "  esac\n"
      "  case $current in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _qinfer qinfer\n",
      Join(names).c_str(), values.c_str(), cases.c_str());
}

void PrintZsh(const CLI::App* root) {
  std::printf("#compdef qinfer\n_qinfer() {\n  local -a commands\n  commands=(\n");
  for (const CLI::App* sub : root->get_subcommands({})) {
    std::printf("    '%s:%s'\n", sub->get_name().c_str(), Quoted(sub->get_description()).c_str());
  }
  std::printf(
      "  )\n  if (( CURRENT == 2 )); then\n    _describe 'command' commands\n    return\n  fi\n  "
      "case \"$words[2] $words[CURRENT-1]\" in\n");
  for (const CLI::App* sub : root->get_subcommands({})) {
    ForEachValues(sub, [&](const std::string& before, const std::vector<std::string>& words) {
      std::printf("    '%s %s') compadd -- %s; return ;;\n", sub->get_name().c_str(),
                  before.c_str(), Join(words).c_str());
    });
  }
  std::printf("  esac\n  case $words[2] in\n");
  for (const CLI::App* sub : root->get_subcommands({})) {
    std::printf("    %s) compadd -- %s ;;\n", sub->get_name().c_str(),
                Join(OptionNames(sub)).c_str());
  }
  std::printf("  esac\n  _files\n}\n_qinfer \"$@\"\n");
}

void PrintFish(const CLI::App* root) {
  for (const CLI::App* sub : root->get_subcommands({})) {
    std::printf("complete -c qinfer -n __fish_use_subcommand -a %s -d '%s'\n",
                sub->get_name().c_str(), Quoted(sub->get_description()).c_str());
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const std::vector<std::string> words = Values(option);
        const std::string values = words.empty() ? "" : " -xa '" + Join(words) + "'";
        std::printf("complete -c qinfer -n '__fish_seen_subcommand_from %s' -l %s%s -d '%s'\n",
                    sub->get_name().c_str(), name.c_str(), values.c_str(),
                    Quoted(option->get_description()).c_str());
      }
    }
  }
}

}  // namespace

void AddCompletion(CLI::App* app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub = app->add_subcommand(
      "completion", "A completion script for a shell: source <(qinfer completion bash)");
  sub->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  sub->callback([app, shell] {
    if (*shell == "bash") PrintBash(app);
    if (*shell == "zsh") PrintZsh(app);
    if (*shell == "fish") PrintFish(app);
  });
}

}  // namespace cli
