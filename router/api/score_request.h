#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/api_request.h"
#include "router/text/reranker.h"

namespace baton::router {

// How scores are made of the results of a request's prompts, and what an answer repeats.
struct ScoreForm {
  // Empty: prompt i is pair i of a reranker, whose samples are "yes" and "no". Otherwise the
  // embeddings of these prompts are compared, by pair: their cosine is the score.
  std::vector<std::pair<size_t, size_t>> compared = {};
  size_t top = 0;                           // of a reranking: the most results; 0: all
  std::vector<std::string> documents = {};  // of a reranking, if the answer has them
};

// vLLM's /v1/score: text_1 and text_2 are one text each, or one and several, or as many.
StatusOr<ApiRequest> ReadScoreRequest(const nlohmann::ordered_json& body,
                                      const PromptResults& results,
                                      ScoreForm& form);
// /v1/rerank of Jina and Cohere: a query, and documents (strings, or objects with a text).
StatusOr<ApiRequest> ReadRerankRequest(const nlohmann::ordered_json& body,
                                       const PromptResults& results,
                                       ScoreForm& form);

}  // namespace baton::router
