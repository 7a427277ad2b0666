#include "cli/commands.h"

#include <CLI/CLI.hpp>

namespace baton {
namespace {

constexpr int kExitUsage = 2;

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
                    AddModelCommand}) {
    add(app, exit_status);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return exit_status;
}

}  // namespace baton
