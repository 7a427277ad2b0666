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
  std::vector<TokenId> tokens;                        // greedy
  std::vector<double> margins;                        // top 1 − top 2 logit at each step
  std::vector<std::pair<TokenId, double>> first_top;  // the first step's highest logits
  double mean_nll = -1;  // of the prompt; −1 when it has one token or none is given
};

// Reads the `prompts` of a golden file (tests/data/tiny, tests/data/golden).
StatusOr<std::vector<GoldenPrompt>> ReadGoldenPrompts(const std::string& path);

}  // namespace baton
