#include "router/text/reranker.h"

#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// The prompt that the model cards of Qwen3-Reranker state.
constexpr std::string_view kQwen3Prompt =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: {% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}"
    "Given a web search query, retrieve relevant passages that answer the query{% endif %}"
    "{{ '\\n' }}"
    "<Query>: {{ messages[-2].content }}{{ '\\n' }}"
    "<Document>: {{ messages[-1].content }}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n{{ '' }}";

StatusOr<TokenId> OneToken(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> tokens = tokenizer.Encode(text, {});
  if (tokens.size() == 1) return tokens[0];
  return InvalidArgument("\"{}\" is {} tokens of the model's tokenizer; a reranker has one for it",
                         text,
                         tokens.size());
}

StatusOr<Reranker> MakeReranker(ChatTemplate prompt, const Tokenizer& tokenizer) {
  BATON_ASSIGN_OR_RETURN(const TokenId yes, OneToken(tokenizer, "yes"));
  BATON_ASSIGN_OR_RETURN(const TokenId no, OneToken(tokenizer, "no"));
  return Reranker{std::move(prompt), yes, no};
}

// Templates that print messages of any role are not made for these two, so the words must be there,
// too.
bool PrintsQueriesAndDocuments(const ChatTemplate& prompt) {
  constexpr std::string_view kQuery = "QUERY_PROBE";
  constexpr std::string_view kDocument = "DOCUMENT_PROBE";
  const std::string& source = prompt.source();
  const auto has_role = [&](std::string_view role) {
    return source.find(fmt::format("'{}'", role)) != std::string::npos ||
           source.find(fmt::format("\"{}\"", role)) != std::string::npos;
  };
  if (!has_role("query") || !has_role("document")) return false;
  const Reranker probe{prompt};
  const auto rendered =
      probe.Render({std::string(kQuery), std::string(kDocument), ""}, RenderOptions());
  if (!rendered.ok()) return false;
  std::string text;
  for (const TextSegment& segment : *rendered) text += segment.text;
  return text.find(kQuery) != std::string::npos && text.find(kDocument) != std::string::npos;
}

}  // namespace

StatusOr<std::vector<TextSegment>> Reranker::Render(const RerankInput& input,
                                                    const RenderOptions& options) const {
  Json messages = Json::array();
  if (!input.instruction.empty()) {
    messages.push_back({{"role", "system"}, {"content", input.instruction}});
  }
  messages.push_back({{"role", "query"}, {"content", input.query}});
  messages.push_back({{"role", "document"}, {"content", input.document}});
  const Json context = {{"messages", std::move(messages)}, {"add_generation_prompt", true}};
  return prompt.RenderSegments(context, options);
}

Status FindReranker(RerankFormat format,
                    const std::optional<ChatTemplate>& own,
                    const Tokenizer& tokenizer,
                    PromptResults& out) {
  if (format == RerankFormat::kNone) {
    out.why_no_reranker = "is not a reranker (router setting rerank_format: none)";
    return OkStatus();
  }
  if (format == RerankFormat::kQwen3) {
    BATON_ASSIGN_OR_RETURN(ChatTemplate prompt, ChatTemplate::Parse(kQwen3Prompt));
    auto reranker = MakeReranker(std::move(prompt), tokenizer);
    if (!reranker.ok()) return Annotate(reranker.status(), "rerank_format");
    out.reranker = *std::move(reranker);
    return OkStatus();
  }
  if (!own.has_value() || !PrintsQueriesAndDocuments(*own)) {
    out.why_no_reranker =
        "is not a reranker: its chat template prints no messages of the roles query and document "
        "(router setting rerank_format, for example qwen3)";
    return OkStatus();
  }
  auto reranker = MakeReranker(*own, tokenizer);
  if (reranker.ok()) {
    out.reranker = *std::move(reranker);
  } else {
    out.why_no_reranker = fmt::format("is not a reranker: {}", Message(reranker.status()));
  }
  return OkStatus();
}

}  // namespace baton::router
