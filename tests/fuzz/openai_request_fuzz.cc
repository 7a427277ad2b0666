#include <cstdint>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/text/utf8.h"
#include "router/api/json_members.h"
#include "router/api/messages_request.h"
#include "router/api/openai_request.h"
#include "router/api/responses_request.h"
#include "router/frontend/request_check.h"
#include "router/text/model_text.h"

namespace baton::router {
namespace {

constexpr int32_t kContext = 512;

// A model text with one token for each byte and a template that prints all of its input.
ModelText MakeText() {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.pieces.push_back({std::string(1, static_cast<char>(byte)), PieceKind::kNormal});
  }
  auto tokenizer = Tokenizer::Create(std::move(spec));
  auto chat = ChatTemplate::Parse(
      "{{ tools|tojson if tools is defined }}{% for m in messages %}{{ m.role }}: {{ m|tojson }}"
      "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{{ add_generation_prompt "
      "}}");
  BATON_CHECK(tokenizer.ok() && chat.ok(), "the fuzzer's own tokenizer or template is invalid");
  return ModelText("fuzz", *std::move(tokenizer), *std::move(chat), {}, kContext, 256);
}

// The readers of all HTTP APIs.
StatusOr<ApiRequest> Parse(int api, std::string_view text) {
  if (api < 2) return ParseOpenAiRequest(static_cast<OpenAiKind>(api), text);
  BATON_ASSIGN_OR_RETURN(const auto body, ParseBody(text));
  if (api == 2) return ReadResponsesRequest(body);
  return ReadMessagesRequest(MessagesKind::kCreate, body);
}

}  // namespace
}  // namespace baton::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;          // NOLINT(google-build-using-namespace)
  using namespace baton::router;  // NOLINT(google-build-using-namespace)
  if (size > 65536) return 0;
  static const auto* text = new ModelText(MakeText());
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (int api = 0; api < 4; ++api) {
    const StatusOr<ApiRequest> request = Parse(api, body);
    if (!request.ok()) {
      BATON_CHECK(request.status().code() == StatusCode::kInvalidArgument,
                  "{}",
                  request.status().ToString());
      BATON_CHECK(!Message(request.status()).empty(), "an error without a message");
      continue;
    }
    GenerationRequest generation = request->generation;
    BATON_CHECK(generation.samples >= 1 && generation.samples <= kMaxSamples,
                "a request with {} choices was accepted",
                generation.samples);
    for (const PromptInput& input : request->inputs) {
      generation.input = input;
      if (!CheckRequest(generation, {.vocabulary = text->vocabulary()}).ok()) continue;
      const auto tokens = text->Encode(generation, {.context_length = kContext});
      BATON_CHECK(tokens.ok() || tokens.status().code() == StatusCode::kInvalidArgument,
                  "{}",
                  tokens.status().ToString());
    }
  }
  return 0;
}
