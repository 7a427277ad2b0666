#include "cli/sampling_flags.h"

#include <algorithm>
#include <string>

#include <CLI/CLI.hpp>

#include "common/cluster/sampling_fields.h"

namespace baton {

void AddSamplingFlags(CLI::App& command, GenerateCall& call) {
  for (const SamplingField& field : kSamplingFields) {
    std::string flag = fmt::format("--{}", field.name);
    std::ranges::replace(flag, '_', '-');
    const FloatRange& range = field.range;
    command.add_option(
        flag,
        call.*field.override_value,
        fmt::format(
            "{} ({}{} to {})", field.help, range.open ? "above " : "", range.low, range.high));
  }
  command.add_option("--top-k", call.top_k, "sample among the k most likely tokens; 0: all");
  command.add_option("--seed", call.seed, "the same seed gives the same answer");
  command.add_option("--max-tokens", call.max_tokens, "the most tokens of the answer");
  command.add_option("--stop", call.stop, "end the answer before this text; may be given again")
      ->allow_extra_args(false);
  command.add_option("--timeout-ms", call.timeout_ms, "time limit of the request in milliseconds");
}

}  // namespace baton
