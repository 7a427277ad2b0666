#include "router/frontend/request_input.h"

#include <string>
#include <variant>
#include <vector>

namespace baton::router {
namespace {

constexpr size_t kShortText = 256;

}  // namespace

std::string_view InputMember(const GenerationRequest& request) {
  if (std::holds_alternative<ChatInput>(request.input)) return request.names.messages;
  const bool tokens = std::holds_alternative<std::vector<TokenId>>(request.input);
  return tokens ? request.names.tokens : request.names.text;
}

size_t InputBytes(const GenerationRequest& request) {
  if (const auto* text = std::get_if<std::string>(&request.input)) return text->size();
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&request.input)) {
    return tokens->size() * sizeof(TokenId);
  }
  if (const auto* pair = std::get_if<RerankInput>(&request.input)) {
    return pair->query.size() + pair->document.size() + pair->instruction.size();
  }
  const auto* chat = std::get_if<ChatInput>(&request.input);
  if (chat == nullptr) return 0;
  size_t bytes = chat->tools_json.size() + chat->arguments_json.size();
  for (const ChatTurn& turn : chat->turns) bytes += turn.content.size() + turn.extra_json.size();
  return bytes;
}

bool IsShort(const GenerationRequest& request, size_t bytes) {
  return bytes <= kShortText && !std::holds_alternative<ChatInput>(request.input) &&
         !std::holds_alternative<RerankInput>(request.input) &&
         request.output_grammar.kind == GrammarInput::Kind::kNone;
}

}  // namespace baton::router
