#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>

#include "common/cluster/sampling_fields.h"

namespace baton {

void AddSamplingFlags(CLI::App& command, GenerateCall& call) {
  constexpr FloatRange kTemperature = RangeOf("temperature");
  command.add_option("--temperature",
                     call.temperature,
                     fmt::format("{} (greedy) to {}", kTemperature.low, kTemperature.high));
  command.add_option("--top-k", call.top_k, "sample among the k most likely tokens; 0: all");
  command.add_option("--top-p", call.top_p, "sample among the most likely tokens up to this mass");
  command.add_option(
      "--min-p", call.min_p, "drop tokens below this share of the highest probability");
  command.add_option("--seed", call.seed, "the same seed gives the same answer");
  command.add_option("--max-tokens", call.max_tokens, "the most tokens of the answer");
  command.add_option("--stop", call.stop, "end the answer before this text; may be given again")
      ->allow_extra_args(false);
  command.add_option("--timeout-ms", call.timeout_ms, "time limit of the request in milliseconds");
}

}  // namespace baton
