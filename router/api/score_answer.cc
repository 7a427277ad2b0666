#include "router/api/score_answer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "router/api/answer_json.h"
#include "router/api/embeddings_answer.h"
#include "router/api/openai_answer.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

float Cosine(std::span<const float> a, std::span<const float> b) {
  const EmbeddingForm unit = {.normalize = true};
  const std::vector<float> left = EmbeddingOf(a, unit);
  const std::vector<float> right = EmbeddingOf(b, unit);
  return static_cast<float>(std::inner_product(left.begin(), left.end(), right.begin(), 0.0));
}

// The softmax of two logits, from their logprobs.
float YesAgainstNo(const ApiChoice& yes, const ApiChoice& no) {
  const double difference =
      double{no.logprobs.at(0).chosen.logprob} - yes.logprobs.at(0).chosen.logprob;
  return static_cast<float>(1 / (1 + std::exp(difference)));
}

}  // namespace

std::vector<float> ScoresOf(const std::vector<ApiChoice>& choices, const ScoreForm& form) {
  std::vector<float> scores;
  for (const auto& [left, right] : form.compared) {
    scores.push_back(Cosine(choices[left].pooled, choices[right].pooled));
  }
  if (!form.compared.empty()) return scores;
  for (size_t i = 0; i + 1 < choices.size(); i += 2) {
    scores.push_back(YesAgainstNo(choices[i], choices[i + 1]));
  }
  return scores;
}

std::string ScoreAnswer::Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  const std::vector<float> scores = ScoresOf(choices, form_);
  const Json usage = {{"prompt_tokens", end.prompt_tokens}, {"total_tokens", end.prompt_tokens}};
  Json out = {{"id", head_.id}};
  if (kind_ == Kind::kScore) {
    Json data = Json::array();
    for (size_t i = 0; i < scores.size(); ++i) {
      data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
    }
    out.update({{"object", "list"},
                {"created", head_.created},
                {"model", head_.model},
                {"data", std::move(data)},
                {"usage", usage}});
    return Dump(out);
  }
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return scores[i]; });
  if (form_.top > 0) order.resize(std::min(order.size(), form_.top));
  Json results = Json::array();
  for (const size_t i : order) {
    Json& one = results.emplace_back(Json{{"index", i}, {"relevance_score", scores[i]}});
    if (!form_.documents.empty()) one["document"] = {{"text", form_.documents[i]}};
  }
  out.update({{"model", head_.model}, {"usage", usage}, {"results", std::move(results)}});
  return Dump(out);
}

std::string ScoreAnswer::Error(const Status& status) {
  return OpenAiError(status);
}

}  // namespace baton::router
