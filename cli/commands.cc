#include "cli/commands.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/app/command_documents.h"
#include "common/app/version.h"

namespace baton {
namespace {

constexpr int kExitUsage = 2;

// An error for the first word that should be a command but is not one, or empty. CLI11's own error
// only says that a subcommand is missing.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  const CLI::App* parent = &app;
  for (int i = 1; i < argc && parent->get_require_subcommand_min() > 0; ++i) {
    const std::string word = argv[i];
    if (word.starts_with('-')) break;
    const auto commands = parent->get_subcommands({});
    const auto command = std::find_if(
        commands.begin(), commands.end(), [&](const auto* one) { return one->check_name(word); });
    if (command == commands.end()) {
      std::vector<std::string> known;
      for (const CLI::App* one : commands) known.push_back(one->get_name());
      return fmt::format("\"{}\" is not a command of {}; its commands are {}",
                         word,
                         parent->get_name(),
                         fmt::join(known, ", "));
    }
    parent = *command;
  }
  return "";
}

}  // namespace

int RunBaton(int argc, char** argv) {
  CLI::App app("Baton: disaggregated serving of large language models", "baton");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  int exit_status = 0;
  for (auto* add : {AddUpCommand,
                    AddGenerateCommand,
                    AddChatCommand,
                    AddStatusCommand,
                    AddDrainCommand,
                    AddVerifyCommand,
                    AddKeyCommand,
                    AddModelCommand,
                    AddKernelsCommand,
                    AddHostCommand}) {
    add(app, exit_status);
  }
  app.set_version_flag("--version", fmt::format("baton {}", Version()));
  AddDocumentFlags(app);
  if (const std::string unknown = UnknownCommand(app, argc, argv); !unknown.empty()) {
    fmt::print(stderr, "baton: {}\n", unknown);
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return exit_status;
}

}  // namespace baton
