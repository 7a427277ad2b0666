#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/api/api_request.h"
#include "router/text/reranker.h"

namespace baton::router {

// The most inputs of one request of embeddings (OpenAI's limit), and pairs of a request of scores.
constexpr size_t kMaxInputs = 2048;

// How an answer writes embeddings.
struct EmbeddingForm {
  bool normalize = false;
  int32_t dimensions = 0;  // the first numbers, which are given; 0: all
  bool base64 = false;     // of float32 little endian, in place of numbers
};

// Reads a request of OpenAI's /v1/embeddings: each input (a text, or token ids) becomes a prompt of
// its own. Errors: InvalidArgument naming the member; also when the model has no pooling.
StatusOr<ApiRequest> ReadEmbeddingsRequest(const nlohmann::ordered_json& body,
                                           const PromptResults& results,
                                           EmbeddingForm& form);

// The error of a request of embeddings to a model without them.
Status CheckPooling(const PromptResults& results);

}  // namespace baton::router
