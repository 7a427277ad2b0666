#pragma once

#include <span>
#include <string>
#include <vector>

#include "router/api/api_answer.h"
#include "router/api/embeddings_request.h"

namespace baton::router {

// The embedding of a pooled state: its first `form.dimensions` numbers, normalised if the form says
// so. A vector of zeros stays.
std::vector<float> EmbeddingOf(std::span<const float> pooled, const EmbeddingForm& form);

// The answer of /v1/embeddings.
class EmbeddingsAnswer final : public WholeAnswer {
 public:
  EmbeddingsAnswer(std::string model, const EmbeddingForm& form)
      : model_(std::move(model)), form_(form) {}

  std::string Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) override;
  std::string Error(const Status& status) override;

 private:
  const std::string model_;
  const EmbeddingForm form_;
};

}  // namespace baton::router
