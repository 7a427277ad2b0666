#pragma once

#include <memory>

#include "common/http/http_server.h"
#include "router/frontend/request_frontend.h"

namespace baton::router {

// Handlers of endpoints that only convert between text and tokens, for threads of
// RequestFrontend::PostTokenizing.

// vLLM's /tokenize: a prompt or the messages of a chat → tokens.
void HandleTokenize(const RequestFrontend& frontend, const std::shared_ptr<HttpExchange>& exchange);
// vLLM's /detokenize: tokens → a prompt.
void HandleDetokenize(const RequestFrontend& frontend,
                      const std::shared_ptr<HttpExchange>& exchange);
// OpenAI's /v1/responses/input_tokens.
void HandleInputTokens(const RequestFrontend& frontend,
                       const std::shared_ptr<HttpExchange>& exchange);
// Anthropic's /v1/messages/count_tokens.
void HandleCountTokens(const RequestFrontend& frontend,
                       const std::shared_ptr<HttpExchange>& exchange);

}  // namespace baton::router
