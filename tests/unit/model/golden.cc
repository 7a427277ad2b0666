#include "tests/unit/model/golden.h"

#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"

namespace baton {

StatusOr<std::vector<GoldenPrompt>> ReadGoldenPrompts(const std::string& path,
                                                      const std::string& key) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text);
  std::vector<GoldenPrompt> prompts;
  for (const auto& entry : json.at(key)) {
    GoldenPrompt prompt;
    prompt.prompt = entry.at("prompt").get<std::vector<TokenId>>();
    prompt.name = entry.value("name", fmt::format("prompt of {}", prompt.prompt.size()));
    prompt.tokens = entry.at("tokens").get<std::vector<TokenId>>();
    const auto& margins = entry.at(entry.contains("margins") ? "margins" : "margin");
    prompt.margins = margins.get<std::vector<double>>();
    const auto& top = entry.at(entry.contains("first_top8") ? "first_top8" : "first_top5");
    prompt.first_top = top.get<std::vector<std::pair<TokenId, double>>>();
    if (entry.contains("mean_nll") && !entry["mean_nll"].is_null()) {
      prompt.mean_nll = entry["mean_nll"].get<double>();
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace baton
