#include "cli/commands.h"

#include <CLI/CLI.hpp>

namespace baton {

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
  CLI11_PARSE(app, argc, argv);
  return exit_status;
}

}  // namespace baton
