#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/cluster_client.h"
#include "cli/commands.h"
#include "cli/report.h"
#include "cli/router_endpoint.h"
#include "cli/server_flag.h"
#include "cli/verification.h"
#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr int kExitDifferent = 1;
constexpr int kExitError = 2;
constexpr size_t kMaxFileBytes = size_t{16} << 20;

// Used when the user gives no prompt.
constexpr const char* kPrompts[] = {"Explain in a few sentences why the sky is blue.",
                                    "Write a short story about a lighthouse.",
                                    "List the steps to bake bread.",
                                    "What is the difference between a list and a set?"};

struct VerifyFlags {
  std::string admin = kDefaultAdmin;
  EndpointFlags endpoint;
  std::vector<std::string> prompts;
  std::string file;
  size_t requests = 0;
  bool raw = false;
  int max_tokens = 64;
  uint32_t timeout_ms = 120'000;
};

StatusOr<std::vector<std::string>> PromptsOf(const VerifyFlags& flags) {
  if (flags.file.empty()) {
    if (!flags.prompts.empty()) return flags.prompts;
    return std::vector<std::string>(std::begin(kPrompts), std::end(kPrompts));
  }
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file, kMaxFileBytes));
  std::vector<std::string> prompts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) prompts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (prompts.empty()) {
    return InvalidArgument("{} has no prompt; it must have one prompt a line", flags.file);
  }
  return prompts;
}

// Whether all requests gave the same tokens in both of their runs.
StatusOr<bool> Verify(const VerifyFlags& flags) {
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, PromptsOf(flags));
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(flags.admin, flags.endpoint, kOperatorKeyFile));
  ClusterClient client(endpoint);
  BATON_ASSIGN_OR_RETURN(const ClusterSummary cluster, client.GetStatus());
  BATON_ASSIGN_OR_RETURN(const VerificationPlan plan, VerificationPlan::Make(cluster.workers));
  const size_t count =
      flags.requests > 0 ? flags.requests : std::max(prompts.size(), plan.decode_workers());
  std::vector<VerifiedRequest> verified;
  for (size_t i = 0; i < count; ++i) {
    PinnedCall call{.prompt = prompts[i % prompts.size()],
                    .raw = flags.raw,
                    .max_tokens = flags.max_tokens,
                    .timeout_ms = flags.timeout_ms};
    if (i % 2 == 1) call.seed = i;  // greedy and sampled requests in turn
    const auto runs = plan.Runs(i);
    std::vector<PinnedAnswer> answers;
    for (const RunWorkers& run : {runs.first, runs.second}) {
      call.prefill = run.prefill;
      call.decode = run.decode;
      StatusOr<PinnedAnswer> answer = client.GenerateOn(call);
      if (!answer.ok()) return Annotate(answer.status(), fmt::format("request {}", i));
      answers.push_back(*std::move(answer));
    }
    verified.push_back({runs, DifferenceOf(answers[0], answers[1])});
  }
  fmt::print("{}", FormatVerification(verified));
  for (const std::string& worker : plan.left_out()) {
    fmt::print(stderr, "baton: not checked, because it is not ready: {}\n", worker);
  }
  return std::ranges::none_of(verified, [](const auto& one) { return one.difference.has_value(); });
}

int ExitOf(const StatusOr<bool>& equal) {
  if (!equal.ok()) return Report(equal.status()) == 0 ? 0 : kExitError;
  return *equal ? 0 : kExitDifferent;
}

}  // namespace

void AddVerifyCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand("verify",
                                         "Send requests twice, to different workers, and compare "
                                         "the tokens. Exits with 0 when all are "
                                         "equal, 1 when any differs, 2 after an error");
  CLI::Option* prompts = command->add_option(
      "prompts", flags->prompts, "the users' messages, used in turn; default: four short ones");
  command->add_option("--file", flags->file, "file with one prompt a line")
      ->type_name("FILE")
      ->excludes(prompts);
  command
      ->add_option("--requests",
                   flags->requests,
                   "number of requests; 0: one for each prompt, and enough for every decode worker")
      ->check(CLI::Range(0, 1'000'000));
  command->add_flag("--raw", flags->raw, "send the prompts as they are, without the chat template");
  command->add_option("--max-tokens", flags->max_tokens, "the most tokens of each answer")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--timeout-ms", flags->timeout_ms, "time limit of each request in milliseconds")
      ->check(CLI::Range(1, 86'400'000));
  AddAdminFlag(*command, flags->admin);
  AddEndpointFlags(*command, flags->endpoint);
  command->callback([flags, &exit_status] { exit_status = ExitOf(Verify(*flags)); });
}

}  // namespace baton
