#pragma once

#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/model/pooling_config.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

enum class RerankFormat : uint8_t {
  kAuto,   // the model's chat template, if it prints messages of the roles query and document
  kNone,   // the model judges no documents
  kQwen3,  // the prompt of Qwen3-Reranker
};

// How a causal model judges whether a document answers a query: after its prompt, the logit of
// "yes" against that of "no". Immutable.
struct Reranker {
  ChatTemplate prompt;
  TokenId yes = 0;
  TokenId no = 0;

  // The prompt. Errors: those of ChatTemplate::RenderSegments.
  StatusOr<std::vector<TextSegment>> Render(const RerankInput& input,
                                            const RenderOptions& options) const;
};

// What a model computes of prompts besides output.
struct PromptResults {
  PoolingConfig pooling = {.why_not = "has no pooling"};
  int32_t embedding_size = 0;  // numbers of an embedding
  std::optional<Reranker> reranker = {};
  std::string why_no_reranker = "is not a reranker";  // the end of "the model …"
};

// Makes the reranker of a model, whose chat template is `own`. Without one in `out`,
// why_no_reranker says why. Errors: InvalidArgument when `format` is kQwen3 and the tokenizer lacks
// the tokens.
Status FindReranker(RerankFormat format,
                    const std::optional<ChatTemplate>& own,
                    const Tokenizer& tokenizer,
                    PromptResults& out);

}  // namespace baton::router
