#include "router/api/score_request.h"

#include <initializer_list>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "router/api/chat_members.h"
#include "router/api/embeddings_request.h"
#include "router/api/json_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// The texts of two members. Each pair of them gets a score.
struct Pairs {
  std::vector<std::string> left = {};  // one, or as many as `right`
  std::vector<std::string> right = {};
};

StatusOr<std::string> ReadText(const Json& value, const std::string& name) {
  const Json* const text = value.is_object() ? Member(value, "text") : &value;
  if (text == nullptr || !text->is_string())
    return Wrong(name, "a string, or an object with a text");
  return text->get<std::string>();
}

StatusOr<std::vector<std::string>> ReadTexts(const Json& body, const char* name) {
  const Json* const value = Member(body, name);
  if (value == nullptr) return Wrong(name, "a string or an array of strings");
  std::vector<std::string> texts;
  if (!value->is_array()) {
    BATON_ASSIGN_OR_RETURN(std::string text, ReadText(*value, name));
    texts.push_back(std::move(text));
    return texts;
  }
  if (value->empty() || value->size() > kMaxInputs) {
    return InvalidMember(
        name, "{} has {} texts; it must have between 1 and {}", name, value->size(), kMaxInputs);
  }
  for (size_t i = 0; i < value->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(std::string text, ReadText((*value)[i], fmt::format("{}[{}]", name, i)));
    texts.push_back(std::move(text));
  }
  return texts;
}

// One prompt for each pair.
void AskReranker(Pairs pairs,
                 const std::string& instruction,
                 const Reranker& reranker,
                 ApiRequest& out) {
  GenerationRequest& generation = out.generation;
  generation.labels = {reranker.yes, reranker.no};
  generation.samples = 2;
  generation.top_logprobs = 0;
  for (size_t i = 0; i < pairs.right.size(); ++i) {
    out.inputs.emplace_back(RerankInput{
        pairs.left[pairs.left.size() == 1 ? 0 : i], std::move(pairs.right[i]), instruction});
  }
}

// One prompt for each text.
Status CompareEmbeddings(Pairs pairs,
                         const PromptResults& results,
                         ApiRequest& out,
                         ScoreForm& form) {
  out.generation.samples = 1;
  out.generation.pooling = results.pooling.pooling;
  const size_t lefts = pairs.left.size();
  for (size_t i = 0; i < pairs.right.size(); ++i) {
    form.compared.emplace_back(lefts == 1 ? 0 : i, lefts + i);
  }
  for (std::vector<std::string>* texts : {&pairs.left, &pairs.right}) {
    for (std::string& text : *texts) {
      if (text.empty()) return InvalidMember(out.generation.names.text, "a text is empty");
      out.inputs.emplace_back(std::move(text));
    }
  }
  return OkStatus();
}

// The rest of a request, whose members other than these are `known`.
StatusOr<ApiRequest> ReadPairs(const Json& body,
                               std::string_view member,
                               Pairs pairs,
                               const PromptResults& results,
                               ScoreForm& form) {
  ApiRequest out;
  GenerationRequest& generation = out.generation;
  generation.names.text = generation.names.tokens = member;
  generation.max_tokens = 1;
  generation.ignore_eos = true;
  generation.sampling.temperature = 0;
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  BATON_RETURN_IF_ERROR(ReadPassed(body, generation));
  std::string instruction;
  BATON_RETURN_IF_ERROR(ReadString(body, "instruction", instruction));
  if (results.reranker.has_value()) {
    AskReranker(std::move(pairs), instruction, *results.reranker, out);
    return out;
  }
  if (results.pooling.pooling == Pooling::kNone) {
    return WithReason(
        InvalidArgument("the model {}, and {}", results.why_no_reranker, results.pooling.why_not),
        reason::kUnsupportedEndpoint);
  }
  if (!instruction.empty()) {
    return Unsupported("instruction", "the model compares embeddings, without an instruction");
  }
  BATON_RETURN_IF_ERROR(CompareEmbeddings(std::move(pairs), results, out, form));
  return out;
}

}  // namespace

StatusOr<ApiRequest> ReadScoreRequest(const Json& body,
                                      const PromptResults& results,
                                      ScoreForm& form) {
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"cache_salt",
                                    "instruction",
                                    "model",
                                    "priority",
                                    "text_1",
                                    "text_2",
                                    "timeout_ms",
                                    "user"}));
  Pairs pairs;
  BATON_ASSIGN_OR_RETURN(pairs.left, ReadTexts(body, "text_1"));
  BATON_ASSIGN_OR_RETURN(pairs.right, ReadTexts(body, "text_2"));
  if (pairs.left.size() != 1 && pairs.left.size() != pairs.right.size()) {
    return InvalidMember("text_1",
                         "text_1 has {} texts and text_2 has {}; text_1 must have 1, or as many",
                         pairs.left.size(),
                         pairs.right.size());
  }
  return ReadPairs(body, "text_2", std::move(pairs), results, form);
}

StatusOr<ApiRequest> ReadRerankRequest(const Json& body,
                                       const PromptResults& results,
                                       ScoreForm& form) {
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"cache_salt",
                                    "documents",
                                    "instruction",
                                    "model",
                                    "priority",
                                    "query",
                                    "return_documents",
                                    "timeout_ms",
                                    "top_n",
                                    "user"}));
  Pairs pairs;
  const Json* const query = Member(body, "query");
  if (query == nullptr || !query->is_string()) return Wrong("query", "a string");
  pairs.left.push_back(query->get<std::string>());
  const Json* const documents = Member(body, "documents");
  if (documents == nullptr || !documents->is_array()) return Wrong("documents", "an array");
  BATON_ASSIGN_OR_RETURN(pairs.right, ReadTexts(body, "documents"));
  std::optional<int32_t> top;
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_n", top));
  if (top.has_value() && *top < 0) {
    return InvalidMember("top_n", "top_n is {}; it must be at least 1, or 0 for all", *top);
  }
  form.top = static_cast<size_t>(top.value_or(0));
  bool repeats = true;
  BATON_RETURN_IF_ERROR(ReadBool(body, "return_documents", repeats));
  if (repeats) form.documents = pairs.right;
  return ReadPairs(body, "documents", std::move(pairs), results, form);
}

}  // namespace baton::router
