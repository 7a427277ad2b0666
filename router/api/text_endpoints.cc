#include "router/api/text_endpoints.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "router/api/answer_json.h"
#include "router/api/api_call.h"
#include "router/api/json_members.h"
#include "router/api/messages_answer.h"
#include "router/api/messages_request.h"
#include "router/api/openai_answer.h"
#include "router/api/openai_request.h"
#include "router/api/responses_request.h"
#include "router/frontend/request_check.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Compute = StatusOr<Json> (*)(const RequestFrontend&, const Json& body, const TextLimits&);
using Error = std::string (*)(const Status&);

constexpr size_t kMaxDetokenize = size_t{1} << 20;

void Answer(const RequestFrontend& frontend,
            const std::shared_ptr<HttpExchange>& exchange,
            Compute compute,
            Error error) {
  const auto left = std::make_shared<std::atomic<bool>>(false);
  exchange->OnDisconnect([left] { *left = true; });
  const TextLimits limits{.context_length = frontend.context_length(),
                          .cancelled = [left] { return left->load(); }};
  const StatusOr<Json> body = ParseBody(exchange->request().body);
  const StatusOr<Json> answer = body.ok() ? compute(frontend, *body, limits) : body.status();
  if (answer.ok()) return exchange->Reply(200, "application/json", Dump(*answer));
  ReplyError(*exchange, answer.status(), error(answer.status()));
}

// The tokens of a request with one input, which the API has read.
StatusOr<std::vector<TokenId>> TokensOf(const RequestFrontend& frontend,
                                        ApiRequest& request,
                                        const TextLimits& limits) {
  GenerationRequest& generation = request.generation;
  generation.input = std::move(request.inputs.front());
  BATON_RETURN_IF_ERROR(frontend.CheckModel(generation.model));
  BATON_RETURN_IF_ERROR(CheckRequest(generation, {.vocabulary = frontend.text().vocabulary()}));
  return frontend.text().Encode(generation, limits);
}

StatusOr<Json> Tokenize(const RequestFrontend& frontend,
                        const Json& body,
                        const TextLimits& limits) {
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"add_generation_prompt",
                                    "add_special_tokens",
                                    "chat_template_kwargs",
                                    "continue_final_message",
                                    "messages",
                                    "model",
                                    "prompt",
                                    "return_token_strs",
                                    "tools"}));
  bool with_strings = false;
  BATON_RETURN_IF_ERROR(ReadBool(body, "return_token_strs", with_strings));
  Json rest = body;
  rest.erase("return_token_strs");
  const bool chat = Member(body, "messages") != nullptr;
  if (chat == (Member(body, "prompt") != nullptr)) {
    return InvalidMember("prompt", "the request must have either prompt or messages");
  }
  BATON_ASSIGN_OR_RETURN(
      ApiRequest request,
      ReadOpenAiRequest(chat ? OpenAiKind::kChat : OpenAiKind::kCompletion, rest));
  if (request.inputs.size() != 1) return Wrong("prompt", "one prompt");
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(frontend, request, limits));
  Json answer = {
      {"count", tokens.size()}, {"max_model_len", frontend.context_length()}, {"tokens", tokens}};
  if (!with_strings) return answer;
  Json& strings = answer["token_strs"] = Json::array();
  for (const TokenId token : tokens) strings.push_back(frontend.text().tokenizer().piece(token));
  return answer;
}

StatusOr<Json> Detokenize(const RequestFrontend& frontend, const Json& body, const TextLimits&) {
  BATON_RETURN_IF_ERROR(CheckKnown(body, "", {"model", "skip_special_tokens", "tokens"}));
  std::string model;
  BATON_RETURN_IF_ERROR(ReadString(body, "model", model));
  BATON_RETURN_IF_ERROR(frontend.CheckModel(model));
  bool skip_special = false;
  BATON_RETURN_IF_ERROR(ReadBool(body, "skip_special_tokens", skip_special));
  const Json* given = Member(body, "tokens");
  if (given == nullptr || !given->is_array()) return Wrong("tokens", "an array of token ids");
  if (given->size() > kMaxDetokenize) {
    return InvalidMember(
        "tokens", "tokens has {} entries; at most {} are allowed", given->size(), kMaxDetokenize);
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ReadTokens("tokens", *given));
  const Tokenizer& tokenizer = frontend.text().tokenizer();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokenizer.Contains(tokens[i])) continue;
    return InvalidMember(fmt::format("tokens[{}]", i),
                         "tokens[{}] is {}; the vocabulary has {} tokens",
                         i,
                         tokens[i],
                         tokenizer.vocab_size());
  }
  return Json{{"prompt", tokenizer.Decode(tokens, skip_special)}};
}

StatusOr<Json> CountTokens(const RequestFrontend& frontend,
                           const Json& body,
                           const TextLimits& limits) {
  BATON_ASSIGN_OR_RETURN(ApiRequest request, ReadMessagesRequest(MessagesKind::kCountTokens, body));
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(frontend, request, limits));
  return Json{{"input_tokens", tokens.size()}};
}

StatusOr<Json> InputTokens(const RequestFrontend& frontend,
                           const Json& body,
                           const TextLimits& limits) {
  BATON_ASSIGN_OR_RETURN(ApiRequest request, ReadResponsesRequest(body));
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(frontend, request, limits));
  return Json{{"object", "response.input_tokens"}, {"input_tokens", tokens.size()}};
}

}  // namespace

void HandleTokenize(const RequestFrontend& frontend,
                    const std::shared_ptr<HttpExchange>& exchange) {
  Answer(frontend, exchange, &Tokenize, &OpenAiError);
}

void HandleDetokenize(const RequestFrontend& frontend,
                      const std::shared_ptr<HttpExchange>& exchange) {
  Answer(frontend, exchange, &Detokenize, &OpenAiError);
}

void HandleInputTokens(const RequestFrontend& frontend,
                       const std::shared_ptr<HttpExchange>& exchange) {
  Answer(frontend, exchange, &InputTokens, &OpenAiError);
}

void HandleCountTokens(const RequestFrontend& frontend,
                       const std::shared_ptr<HttpExchange>& exchange) {
  Answer(frontend, exchange, &CountTokens, &MessagesError);
}

}  // namespace baton::router
