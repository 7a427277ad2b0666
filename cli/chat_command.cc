#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/generation_client.h"
#include "cli/line_reader.h"
#include "cli/report.h"
#include "cli/sampling_flags.h"
#include "cli/server_flag.h"
#include "common/app/signal_waiter.h"
#include "common/base/thread.h"
#include "common/config/home.h"

namespace baton {
namespace {

constexpr auto kInterruptPoll = std::chrono::milliseconds(50);
constexpr const char* kHelp =
    "/reset    forget the conversation\n"
    "/account  show the time of each phase of the last answer\n"
    "/help     show this help\n"
    "/exit     leave; Ctrl-D does the same\n"
    "Ctrl-C cancels the current answer.\n";

struct ChatFlags {
  std::string server = kDefaultServer;
  EndpointFlags endpoint;
  std::string system;
  GenerateCall call;
};

// The conversation of one `baton chat`. For the main thread. SIGINT is blocked; `interrupts_`
// receives it.
class Chat final {
 public:
  Chat(const ChatFlags& flags, const RouterEndpoint& endpoint)
      : flags_(flags), interrupts_({SIGINT}), client_(endpoint) {
    Reset();
  }

  Status Run() {
    BATON_ASSIGN_OR_RETURN(const std::string model, client_.ModelName());
    fmt::print("Talking to {} at {}. /help lists the commands.\n", model, flags_.server);
    LineReader reader(HomeFolder() + "/chat_history");
    std::string line;
    while (true) {
      const auto outcome = reader.Read("> ", line);
      if (outcome == LineReader::Outcome::kEnd) return OkStatus();
      if (outcome == LineReader::Outcome::kInterrupted || line.empty()) continue;
      if (line == "/exit" || line == "/quit") return OkStatus();
      if (line.front() == '/') {
        Command(line);
      } else {
        BATON_RETURN_IF_ERROR(Answer(line));
      }
    }
  }

 private:
  void Reset() {
    turns_.clear();
    if (!flags_.system.empty()) turns_.push_back({"system", flags_.system});
  }

  void Command(const std::string& line) {
    if (line == "/reset") {
      Reset();
      fmt::print("The conversation is forgotten.\n");
    } else if (line == "/account" && last_.generated_tokens == 0) {
      fmt::print("There is no answer yet.\n");
    } else if (line == "/account") {
      fmt::print("{}", FormatAccount(last_));
    } else {
      if (line != "/help") fmt::print("{} is not a command.\n", line);
      fmt::print("{}", kHelp);
    }
  }

  // Prints an answer, or the error of this request. Returns an error only when the chat must end.
  Status Answer(const std::string& question) {
    turns_.push_back({"user", question});
    GenerateCall call = flags_.call;
    call.turns = turns_;
    std::string text;
    const auto print = [&text](std::string_view piece) {
      text += piece;
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
    // Ignore a Ctrl-C that arrived just after the previous answer ended.
    while (interrupts_.Wait(Duration::zero()) != 0) continue;
    std::stop_source cancel;
    const std::jthread watch = StartThread("interrupt", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (interrupts_.Wait(kInterruptPoll) == SIGINT) cancel.request_stop();
      }
    });
    const auto account = client_.Generate(call, print, cancel.get_token());
    fmt::print("\n");
    if (account.ok()) {
      last_ = *account;
    } else if (account.status().code() == StatusCode::kCancelled) {
      fmt::print("(cancelled)\n");
    } else {
      turns_.pop_back();
      Report(account.status());
      return OkStatus();
    }
    turns_.push_back({"assistant", text});
    return OkStatus();
  }

  const ChatFlags& flags_;
  const SignalWaiter interrupts_;
  GenerationClient client_;
  std::vector<ChatTurn> turns_;
  GenerateAccount last_;
};

Status RunChat(const ChatFlags& flags) {
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(flags.server, flags.endpoint, kClientKeyFile));
  return Chat(flags, endpoint).Run();
}

}  // namespace

void AddChatCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app.add_subcommand("chat", "Chat with the model");
  AddServerFlag(*command, flags->server);
  AddEndpointFlags(*command, flags->endpoint);
  command->add_option("--system", flags->system, "the system message");
  AddSamplingFlags(*command, flags->call);
  command->callback([flags, &exit_status] { exit_status = Report(RunChat(*flags)); });
}

}  // namespace baton
