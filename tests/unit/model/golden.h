#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace baton {

// One prompt with the outputs of an independent implementation.
struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;                        // greedy output
  std::vector<double> margins;                        // best minus second-best logit of each step
  std::vector<std::pair<TokenId, double>> first_top;  // the highest logits of the first step
  double mean_nll = -1;                               // mean NLL of the prompt; −1 when absent
};

// Reads the prompts, member `key`, of a golden file (tests/data/tiny, tests/data/golden).
StatusOr<std::vector<GoldenPrompt>> ReadGoldenPrompts(const std::string& path,
                                                      const std::string& key = "prompts");

}  // namespace baton
