#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/generation_client.h"
#include "cli/report.h"
#include "cli/sampling_flags.h"
#include "cli/server_flag.h"

namespace baton {
namespace {

struct GenerateFlags {
  std::string server = kDefaultServer;
  EndpointFlags endpoint;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  bool account = false;
  GenerateCall call;
};

Status Generate(GenerateFlags& flags) {
  if (flags.prompt == "-") {
    flags.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (flags.raw) {
    flags.call.text = flags.prompt;
  } else {
    if (!flags.system.empty()) flags.call.turns.push_back({"system", flags.system});
    flags.call.turns.push_back({"user", flags.prompt});
  }
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(flags.server, flags.endpoint, kClientKeyFile));
  GenerationClient client(endpoint);
  const auto print = [&flags](std::string_view text) {
    if (flags.json) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  BATON_ASSIGN_OR_RETURN(const GenerateAccount account, client.Generate(flags.call, print));
  if (flags.json) {
    fmt::print("{}\n", AccountJson(account));
    return OkStatus();
  }
  fmt::print("\n");
  if (flags.account) fmt::print(stderr, "\n{}", FormatAccount(account));
  return OkStatus();
}

}  // namespace

void AddGenerateCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Send one prompt and stream the answer");
  command->add_option("prompt", flags->prompt, "the user's message; - reads the message from stdin")
      ->required();
  AddServerFlag(*command, flags->server);
  AddEndpointFlags(*command, flags->endpoint);
  CLI::Option* system = command->add_option("--system", flags->system, "the system message");
  command->add_flag("--raw", flags->raw, "send the prompt as it is, without the chat template")
      ->excludes(system);
  command->add_flag("--ignore-eos", flags->call.ignore_eos, "continue after the end token");
  command->add_flag("--account", flags->account, "print the time of each phase on stderr");
  command->add_flag("--json", flags->json, "print one JSON object with text, tokens and times");
  AddSamplingFlags(*command, flags->call);
  command->callback([flags, &exit_status] { exit_status = Report(Generate(*flags)); });
}

}  // namespace baton
