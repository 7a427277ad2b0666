#include "common/app/command_documents.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/app/version.h"

namespace baton {
namespace {

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

// `text` as roff prints it unchanged: roff reads a backslash and a first dot or quote as commands.
std::string Roff(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out = "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string OptionEntry(const CLI::Option& option) {
  const bool positional = option.get_positional();
  const std::string name = positional ? option.get_name(true) : option.get_name(false, true);
  std::string out = fmt::format(".TP\n\\fB{}\\fR", Roff(name));
  if (!positional && option.get_items_expected_max() > 0) {
    out += fmt::format(" \\fI{}\\fR", Roff(option.get_type_name()));
  }
  out += fmt::format("\n{}\n", Roff(option.get_description()));
  const std::string value = option.get_default_str();
  if (!value.empty() && value != "[]") out += fmt::format(".br\nDefault: {}\n", Roff(value));
  return out;
}

// The sections of all commands below `app`, whose full name is `name`.
std::string CommandSections(const CLI::App& app, const std::string& name) {
  std::string out;
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string full = name + " " + command->get_name();
    out += fmt::format(".SS {}\n{}\n", Roff(full), Roff(command->get_description()));
    for (const CLI::Option* option : OptionsOf(*command)) out += OptionEntry(*option);
    out += CommandSections(*command, full);
  }
  return out;
}

// Appends, for bash, the words that may follow the command `path` (" model inspect"), and those of
// all commands below it.
void AppendWords(const CLI::App& app,
                 const std::string& path,
                 std::string& paths,
                 std::string& words) {
  std::string next;
  for (const CLI::App* command : CommandsOf(app)) next += command->get_name() + " ";
  for (const CLI::Option* option : OptionsOf(app)) {
    for (const auto& name : option->get_lnames()) next += "--" + name + " ";
  }
  words += fmt::format("    \"{}\") words=\"{}\" ;;\n", path, next);
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string full = path + " " + command->get_name();
    paths += fmt::format("      \"{}\") path=\"{}\" ;;\n", full, full);
    AppendWords(*command, full, paths, words);
  }
}

}  // namespace

std::string ManPage(const CLI::App& app) {
  std::string title = app.get_name();
  std::transform(
      title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"Baton {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B "
      "{}\n[\\fIflags\\fR]{}\n.SH OPTIONS\n",
      Roff(title),
      Version(),
      Roff(app.get_name()),
      Roff(app.get_description()),
      Roff(app.get_name()),
      CommandsOf(app).empty() ? "" : " \\fIcommand\\fR [\\fIflags\\fR]");
  for (const CLI::Option* option : OptionsOf(app)) out += OptionEntry(*option);
  if (const std::string sections = CommandSections(app, app.get_name()); !sections.empty()) {
    out += ".SH COMMANDS\n" + sections;
  }
  return out;
}

std::string BashCompletion(const CLI::App& app) {
  std::string function = "_" + app.get_name();
  std::replace(function.begin(), function.end(), '-', '_');
  std::string paths;
  std::string words;
  AppendWords(app, "", paths, words);
  std::string out = fmt::format("{}() {{\n  local words= path= i\n", function);
  if (!paths.empty()) {
    out += fmt::format(
        "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "    case \"$path ${{COMP_WORDS[i]}}\" in\n{}    esac\n"
        "  done\n",
        paths);
  }
  out += fmt::format(
      "  case \"$path\" in\n{}  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\")\n}}\n"
      "complete -o default -F {} {}\n",
      words,
      function,
      app.get_name());
  return out;
}

void AddDocumentFlags(CLI::App& app) {
  const auto add = [&app](
                       const char* flag, const char* help, std::string (*print)(const CLI::App&)) {
    app.add_flag_callback(
        flag, [&app, print] { throw CLI::CallForVersion(print(app), 0); }, help);
  };
  add("--man-page", "print the manual page", ManPage);
  add("--bash-completion", "print the completion script for bash", BashCompletion);
}

}  // namespace baton
