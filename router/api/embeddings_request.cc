#include "router/api/embeddings_request.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/cluster/request_fields.h"
#include "router/api/chat_members.h"
#include "router/api/json_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInputs = "a string, an array of token ids, or an array of these";

StatusOr<PromptInput> ReadInput(const Json& input, const std::string& name) {
  if (input.is_string()) {
    std::string text = input.get<std::string>();
    if (text.empty()) return InvalidMember(name, "{} is an empty string", name);
    return PromptInput(std::move(text));
  }
  if (!input.is_array()) return Wrong(name, "a string or an array of token ids");
  BATON_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, ReadTokens(name, input));
  if (tokens.empty()) return InvalidMember(name, "{} is an empty array", name);
  return PromptInput(std::move(tokens));
}

Status ReadInputs(const Json& body, std::vector<PromptInput>& out) {
  const Json* input = Member(body, "input");
  if (input == nullptr || !(input->is_string() || input->is_array())) {
    return Wrong("input", kInputs);
  }
  if (input->is_array() && input->empty()) {
    return InvalidMember("input", "input is an empty array; it must be {}", kInputs);
  }
  if (input->is_string() || input->front().is_number()) {
    BATON_ASSIGN_OR_RETURN(PromptInput one, ReadInput(*input, "input"));
    out.push_back(std::move(one));
    return OkStatus();
  }
  if (input->size() > kMaxInputs) {
    return InvalidMember(
        "input", "input has {} inputs; at most {} are allowed", input->size(), kMaxInputs);
  }
  for (size_t i = 0; i < input->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(PromptInput one, ReadInput((*input)[i], fmt::format("input[{}]", i)));
    out.push_back(std::move(one));
  }
  return OkStatus();
}

Status ReadForm(const Json& body, const PromptResults& results, EmbeddingForm& form) {
  form.normalize = results.pooling.normalize;
  std::string format = "float";
  BATON_RETURN_IF_ERROR(ReadString(body, "encoding_format", format));
  if (format != "float" && format != "base64") {
    return InvalidMember(
        "encoding_format", "encoding_format is \"{}\"; it must be float or base64", Shown(format));
  }
  form.base64 = format == "base64";
  std::optional<int32_t> dimensions;
  BATON_RETURN_IF_ERROR(ReadInt(body, "dimensions", dimensions));
  if (!dimensions.has_value()) return OkStatus();
  if (*dimensions < 1 || *dimensions > results.embedding_size) {
    return InvalidMember("dimensions",
                         "dimensions is {}; it must be between 1 and {}",
                         *dimensions,
                         results.embedding_size);
  }
  form.dimensions = *dimensions;
  return OkStatus();
}

}  // namespace

Status CheckPooling(const PromptResults& results) {
  if (results.pooling.pooling != Pooling::kNone) return OkStatus();
  return WithReason(
      InvalidArgument("the model {}; the router setting embedding_pooling can set one",
                      results.pooling.why_not),
      reason::kUnsupportedEndpoint);
}

StatusOr<ApiRequest> ReadEmbeddingsRequest(const Json& body,
                                           const PromptResults& results,
                                           EmbeddingForm& form) {
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"add_special_tokens",
                                    "cache_salt",
                                    "dimensions",
                                    "encoding_format",
                                    "input",
                                    "model",
                                    "priority",
                                    "timeout_ms",
                                    "user"}));
  BATON_RETURN_IF_ERROR(CheckPooling(results));
  ApiRequest out;
  GenerationRequest& generation = out.generation;
  generation.names.text = generation.names.tokens = "input";
  generation.samples = 1;
  generation.max_tokens = 1;
  generation.ignore_eos = true;
  generation.pooling = results.pooling.pooling;
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  BATON_RETURN_IF_ERROR(ReadInputs(body, out.inputs));
  BATON_RETURN_IF_ERROR(ReadForm(body, results, form));
  if (const Json* special = Member(body, "add_special_tokens"); special != nullptr) {
    if (!special->is_boolean()) return Wrong("add_special_tokens", "true or false");
    generation.add_special_tokens = special->get<bool>();
  }
  BATON_RETURN_IF_ERROR(ReadPassed(body, generation));
  return out;
}

}  // namespace baton::router
