#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "router/api/api_answer.h"
#include "router/api/score_request.h"

namespace baton::router {

// Values that an answer with scores repeats.
struct ScoreHead {
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
};

// The scores of all pairs: of a reranker the probability of "yes" against "no", between 0 and 1; of
// embeddings their cosine. Workers give finite numbers only.
std::vector<float> ScoresOf(const std::vector<ApiChoice>& choices, const ScoreForm& form);

// The answer of vLLM's /v1/score, or of /v1/rerank: then the results are sorted, best first.
class ScoreAnswer final : public WholeAnswer {
 public:
  enum class Kind : uint8_t { kScore, kRerank };
  ScoreAnswer(Kind kind, ScoreHead head, ScoreForm form)
      : kind_(kind), head_(std::move(head)), form_(std::move(form)) {}

  std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Error(const Status& status) override;

 private:
  const Kind kind_;
  const ScoreHead head_;
  const ScoreForm form_;
};

}  // namespace baton::router
