#include "router/api/openai_request.h"

#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "router/api/chat_members.h"
#include "router/api/grammar_members.h"
#include "router/api/json_members.h"
#include "router/api/openai_members.h"
#include "router/api/tool_members.h"
#include "router/frontend/request_check.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order of members for chat templates

constexpr int32_t kDefaultCompletionTokens = 16;

Status ReadStops(const Json& body, GenerationRequest& out) {
  BATON_RETURN_IF_ERROR(ReadStrings(body, "stop", out.stop));
  if (const Json* ids = Member(body, "stop_token_ids"); ids != nullptr) {
    if (!ids->is_array()) return Wrong("stop_token_ids", "an array of token ids");
    BATON_ASSIGN_OR_RETURN(out.stop_token_ids, ReadTokens("stop_token_ids", *ids));
  }
  return OkStatus();
}

StatusOr<ChatTurn> ReadMessage(Json message, const std::string& name) {
  if (!message.is_object()) return Wrong(name, "an object");
  const Json* role = Member(message, "role");
  if (role == nullptr || !role->is_string()) return Wrong(name + ".role", "a string");
  ChatTurn turn;
  turn.role = role->get<std::string>();
  message.erase("role");
  // A null content stays in extra_json, because templates distinguish it from an empty text.
  if (turn.role == "user" && Member(message, "content") == nullptr) {
    return Wrong(name + ".content", "a string or an array of text parts");
  }
  if (const Json* content = Member(message, "content"); content != nullptr) {
    BATON_ASSIGN_OR_RETURN(turn.content, ReadContent(*content, name + ".content"));
    message.erase("content");
  }
  if (!message.empty()) turn.extra_json = message.dump();
  return turn;
}

// The variables of the chat template other than messages and tools.
Status ReadTemplateArguments(const Json& body, ChatInput& chat) {
  Json arguments = Json::object();
  if (const Json* given = Member(body, "chat_template_kwargs"); given != nullptr) {
    if (!given->is_object()) return Wrong("chat_template_kwargs", "an object");
    arguments = *given;
  }
  if (const Json* documents = Member(body, "documents"); documents != nullptr) {
    if (!documents->is_array()) return Wrong("documents", "an array");
    arguments["documents"] = *documents;
  }
  if (const Json* begin = Member(body, "add_generation_prompt"); begin != nullptr) {
    if (!begin->is_boolean()) return Wrong("add_generation_prompt", "true or false");
    arguments["add_generation_prompt"] = *begin;
  }
  if (!arguments.empty()) chat.arguments_json = arguments.dump();
  return ReadBool(body, "continue_final_message", chat.continue_final_message);
}

Status ReadChat(const Json& body, ApiRequest& out) {
  const Json* messages = Member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return Wrong("messages", "an array of at least one message");
  }
  ChatInput chat;
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(ChatTurn turn,
                           ReadMessage((*messages)[i], fmt::format("messages[{}]", i)));
    chat.turns.push_back(std::move(turn));
  }
  ChatOutput& output = out.generation.chat_output.emplace();
  BATON_RETURN_IF_ERROR(ReadTools(ToolApi::kChat, body, chat, output));
  BATON_RETURN_IF_ERROR(ReadString(body, "reasoning_effort", chat.reasoning_effort));
  BATON_RETURN_IF_ERROR(ReadBool(body, "include_reasoning", out.include_reasoning));
  BATON_RETURN_IF_ERROR(ReadTemplateArguments(body, chat));
  out.inputs.emplace_back(std::move(chat));
  return OkStatus();
}

// Reads one prompt: a text, or an array of token ids.
StatusOr<PromptInput> ReadPrompt(const Json& prompt, const std::string& name) {
  if (prompt.is_string()) return PromptInput(prompt.get<std::string>());
  if (!prompt.is_array()) return Wrong(name, "a string or an array of token ids");
  BATON_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, ReadTokens(name, prompt));
  return PromptInput(std::move(tokens));
}

Status ReadPrompts(const Json& body, ApiRequest& out) {
  const Json* prompt = Member(body, "prompt");
  if (prompt == nullptr || (prompt->is_array() && prompt->empty())) {
    return Wrong("prompt", "a string, an array of token ids, or an array of these");
  }
  const bool one = !prompt->is_array() || prompt->front().is_number();
  if (one) {
    BATON_ASSIGN_OR_RETURN(PromptInput input, ReadPrompt(*prompt, "prompt"));
    out.inputs.push_back(std::move(input));
    return OkStatus();
  }
  if (prompt->size() > kMaxPrompts) {
    return InvalidMember(
        "prompt", "prompt has {} prompts; at most {} are allowed", prompt->size(), kMaxPrompts);
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    BATON_ASSIGN_OR_RETURN(PromptInput input,
                           ReadPrompt((*prompt)[i], fmt::format("prompt[{}]", i)));
    out.inputs.push_back(std::move(input));
  }
  return OkStatus();
}

Status ReadLogprobs(OpenAiKind kind, const Json& body, GenerationRequest& out) {
  if (kind == OpenAiKind::kCompletion) return ReadInt(body, "logprobs", out.top_logprobs);
  bool wanted = false;
  BATON_RETURN_IF_ERROR(ReadBool(body, "logprobs", wanted));
  std::optional<int32_t> top;
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_logprobs", top));
  if (top.has_value() && !wanted) {
    return InvalidMember("top_logprobs", "top_logprobs needs logprobs: true");
  }
  if (wanted) out.top_logprobs = top.value_or(0);
  return OkStatus();
}

// Reads `echo`, with which max_tokens may be 0: the answer is the prompt. Workers sample at least
// one token of each request, with which the logprobs of the prompt come. ApiCall leaves it out.
Status ReadEcho(const Json& body, ApiRequest& out) {
  GenerationRequest& generation = out.generation;
  const std::string_view member = generation.names.max_tokens;
  BATON_RETURN_IF_ERROR(ReadBool(body, "echo", out.echo));
  if (generation.max_tokens != 0) return OkStatus();
  if (!out.echo) {
    return InvalidMember(member,
                         "{} is 0; it must be at least 1 (0 is for a request with echo: true, "
                         "whose answer is the prompt)",
                         member);
  }
  if (generation.min_tokens > 0) {
    return InvalidMember("min_tokens",
                         "min_tokens is {} and {} is 0; min_tokens must not be more than {}",
                         generation.min_tokens,
                         member,
                         member);
  }
  generation.max_tokens = 1;
  out.prompt_only = true;
  return OkStatus();
}

// With echo, the logprobs of a completion begin with those of the prompt. `prompt_logprobs` is
// vLLM's member, which its server does not stream either.
Status ReadPromptLogprobs(const Json& body, ApiRequest& out) {
  GenerationRequest& generation = out.generation;
  std::optional<int32_t> wanted;
  BATON_RETURN_IF_ERROR(ReadInt(body, "prompt_logprobs", wanted));
  out.prompt_logprobs = wanted.has_value();
  if (out.prompt_logprobs && out.stream) {
    return WithReason(InvalidMember("prompt_logprobs", "prompt_logprobs are not streamed"),
                      reason::kUnsupportedParameter);
  }
  generation.prompt_logprobs = wanted;
  if (!out.echo || !generation.top_logprobs.has_value()) return OkStatus();
  if (!wanted.has_value()) generation.names.prompt_logprobs = "logprobs";
  generation.prompt_logprobs = std::max(wanted.value_or(0), *generation.top_logprobs);
  return OkStatus();
}

// Reads `n`, and `best_of`, which must be equal to `n`.
Status ReadSamples(const Json& body, GenerationRequest& out) {
  std::optional<int32_t> number;
  BATON_RETURN_IF_ERROR(ReadInt(body, "n", number));
  // Checked here as well as in CheckRequest, because OpenAiCall allocates the choices before that.
  if (number.has_value() && (*number < 1 || *number > kMaxSamples)) {
    return InvalidMember("n", "n is {}; it must be between 1 and {}", *number, kMaxSamples);
  }
  out.samples = number.value_or(1);
  BATON_RETURN_IF_ERROR(ReadInt(body, "best_of", number));
  if (number.value_or(1) == out.samples) return OkStatus();
  return WithReason(InvalidMember("best_of",
                                  "best_of is {} and n is {}; choosing among more samples than are "
                                  "returned is not supported",
                                  *number,
                                  out.samples),
                    reason::kUnsupportedParameter);
}

// Options of tokenising and detokenising, and whether EOS ends a sample.
Status ReadText(const Json& body, GenerationRequest& out) {
  BATON_RETURN_IF_ERROR(ReadBool(body, "ignore_eos", out.ignore_eos));
  BATON_RETURN_IF_ERROR(ReadBool(body, "include_stop_str_in_output", out.include_stop_string));
  out.skip_special_tokens = true;
  BATON_RETURN_IF_ERROR(ReadBool(body, "skip_special_tokens", out.skip_special_tokens));
  if (const Json* special = Member(body, "add_special_tokens"); special != nullptr) {
    if (!special->is_boolean()) return Wrong("add_special_tokens", "true or false");
    out.add_special_tokens = special->get<bool>();
  }
  return OkStatus();
}

Status ReadLengths(OpenAiKind kind, const Json& body, GenerationRequest& out) {
  BATON_RETURN_IF_ERROR(ReadInt(body, "max_tokens", out.max_tokens));
  if (Member(body, "max_completion_tokens") != nullptr) {
    out.names.max_tokens = "max_completion_tokens";
    BATON_RETURN_IF_ERROR(ReadInt(body, "max_completion_tokens", out.max_tokens));
  }
  if (kind == OpenAiKind::kCompletion) out.default_max_tokens = kDefaultCompletionTokens;
  std::optional<int32_t> least;
  BATON_RETURN_IF_ERROR(ReadInt(body, "min_tokens", least));
  out.min_tokens = least.value_or(0);
  return OkStatus();
}

}  // namespace

StatusOr<ApiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Json body, ParseBody(text));
  return ReadOpenAiRequest(kind, body);
}

StatusOr<ApiRequest> ReadOpenAiRequest(OpenAiKind kind, const Json& body) {
  ApiRequest out;
  GenerationRequest& generation = out.generation;
  generation.names.text = "prompt";
  generation.names.tokens = "prompt";
  generation.names.messages = "messages";
  generation.names.template_arguments = "chat_template_kwargs";
  generation.names.samples = "n";
  generation.names.sampling = "";
  if (kind == OpenAiKind::kCompletion) generation.names.top_logprobs = "logprobs";
  BATON_RETURN_IF_ERROR(CheckMembers(kind, body));
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  BATON_RETURN_IF_ERROR(kind == OpenAiKind::kChat ? ReadChat(body, out) : ReadPrompts(body, out));
  BATON_RETURN_IF_ERROR(ReadOutputGrammar(body, generation.output_grammar));
  BATON_RETURN_IF_ERROR(ReadSampling(body, generation.sampling));
  BATON_RETURN_IF_ERROR(ReadStops(body, generation));
  BATON_RETURN_IF_ERROR(ReadLogprobs(kind, body, generation));
  BATON_RETURN_IF_ERROR(ReadLengths(kind, body, generation));
  BATON_RETURN_IF_ERROR(ReadSamples(body, generation));
  BATON_RETURN_IF_ERROR(ReadText(body, generation));
  if (kind == OpenAiKind::kCompletion) BATON_RETURN_IF_ERROR(ReadEcho(body, out));
  BATON_RETURN_IF_ERROR(ReadPassed(body, generation));
  BATON_RETURN_IF_ERROR(ReadBool(body, "stream", out.stream));
  BATON_RETURN_IF_ERROR(ReadPromptLogprobs(body, out));
  if (const Json* options = Member(body, "stream_options"); options != nullptr) {
    if (!options->is_object()) return Wrong("stream_options", "an object");
    BATON_RETURN_IF_ERROR(ReadBool(*options, "include_usage", out.include_usage));
    BATON_RETURN_IF_ERROR(ReadBool(*options, "continuous_usage_stats", out.continuous_usage));
  }
  return out;
}

}  // namespace baton::router
