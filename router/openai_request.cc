#include "router/openai_request.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "router/openai_members.h"
#include "router/request_check.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order of members for chat templates

constexpr int32_t kDefaultCompletionTokens = 16;

// The member; nullptr when it is absent or null.
const Json* Member(const Json& object, std::string_view name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status Wrong(std::string_view name, std::string_view wanted) {
  return InvalidMember(name, "{} must be {}", name, wanted);
}

Status Read(const Json& object, std::string_view name, std::optional<float>& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (!value->is_number()) return Wrong(name, "a number");
  out = static_cast<float>(value->get<double>());
  return OkStatus();
}

template <class T>
Status ReadInt(const Json& object, const char* name, std::optional<T>& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (value->is_number_unsigned()) {
    const auto number = value->get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      out = static_cast<T>(number);
      return OkStatus();
    }
  } else if (value->is_number_integer()) {
    const auto number = value->get<int64_t>();
    if (std::is_signed_v<T> && number >= std::numeric_limits<T>::min()) {
      out = static_cast<T>(number);
      return OkStatus();
    }
  } else {
    return Wrong(name, "an integer");
  }
  return InvalidMember(name, "{} is {}; it is out of range", name, value->dump());
}

Status ReadBool(const Json& object, const char* name, bool& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (!value->is_boolean()) return Wrong(name, "true or false");
  out = value->get<bool>();
  return OkStatus();
}

Status ReadString(const Json& object, const char* name, std::string& out) {
  const Json* value = Member(object, name);
  if (value == nullptr) return OkStatus();
  if (!value->is_string()) return Wrong(name, "a string");
  out = value->get<std::string>();
  return OkStatus();
}

StatusOr<std::vector<TokenId>> ReadTokens(std::string_view name, const Json& value) {
  std::vector<TokenId> out;
  out.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return Wrong(name, "an array of token ids");
    }
    out.push_back(static_cast<TokenId>(id.get<int64_t>()));
  }
  return out;
}

Status ReadStops(const Json& body, GenerationRequest& out) {
  if (const Json* stop = Member(body, "stop"); stop != nullptr) {
    if (stop->is_string()) {
      out.stop.push_back(stop->get<std::string>());
    } else if (stop->is_array()) {
      for (const Json& one : *stop) {
        if (!one.is_string()) return Wrong("stop", "a string or an array of strings");
        out.stop.push_back(one.get<std::string>());
      }
    } else {
      return Wrong("stop", "a string or an array of strings");
    }
  }
  if (const Json* ids = Member(body, "stop_token_ids"); ids != nullptr) {
    if (!ids->is_array()) return Wrong("stop_token_ids", "an array of token ids");
    BATON_ASSIGN_OR_RETURN(out.stop_token_ids, ReadTokens("stop_token_ids", *ids));
  }
  return OkStatus();
}

Status ReadLogitBias(const Json& body, SamplingInput& out) {
  const Json* bias = Member(body, "logit_bias");
  if (bias == nullptr) return OkStatus();
  if (!bias->is_object()) return Wrong("logit_bias", "an object that maps token ids to numbers");
  for (const auto& [key, value] : bias->items()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || !value.is_number()) {
      return Wrong("logit_bias", "an object that maps token ids to numbers");
    }
    out.logit_bias.push_back({token, static_cast<float>(value.get<double>())});
  }
  return OkStatus();
}

// The text of a message: a string, or an array of text parts.
StatusOr<std::string> ReadContent(const Json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return Wrong(name, "a string or an array of text parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) return Wrong(fmt::format("{}[{}]", name, i), "a text part");
    text += part["text"].get<std::string>();
  }
  return text;
}

StatusOr<ChatTurn> ReadMessage(Json message, const std::string& name) {
  if (!message.is_object()) return Wrong(name, "an object");
  const Json* role = Member(message, "role");
  if (role == nullptr || !role->is_string()) return Wrong(name + ".role", "a string");
  ChatTurn turn;
  turn.role = role->get<std::string>();
  message.erase("role");
  // A null content stays in extra_json, because templates distinguish it from an empty text.
  if (const Json* content = Member(message, "content"); content != nullptr) {
    BATON_ASSIGN_OR_RETURN(turn.content, ReadContent(*content, name + ".content"));
    message.erase("content");
  }
  if (!message.empty()) turn.extra_json = message.dump();
  return turn;
}

Status ReadTools(const Json& body, ChatInput& chat) {
  const Json* choice = Member(body, "tool_choice");
  if (choice != nullptr && *choice != "auto" && *choice != "none") {
    return WithReason(Wrong("tool_choice", "\"auto\" or \"none\"; others are not supported"),
                      reason::kUnsupportedParameter);
  }
  bool parallel = true;
  BATON_RETURN_IF_ERROR(ReadBool(body, "parallel_tool_calls", parallel));
  const Json* tools = Member(body, "tools");
  if (tools == nullptr) return OkStatus();
  if (!tools->is_array()) return Wrong("tools", "an array");
  const bool offered = choice == nullptr || *choice != "none";
  if (tools->empty() || !offered) return OkStatus();
  if (!parallel) {
    return WithReason(InvalidMember("parallel_tool_calls",
                                    "parallel_tool_calls: false is not supported with tools: the "
                                    "model decides how many it calls"),
                      reason::kUnsupportedParameter);
  }
  chat.tools_json = tools->dump();
  return OkStatus();
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

Status ReadChat(const Json& body, OpenAiRequest& out) {
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
  BATON_RETURN_IF_ERROR(ReadTools(body, chat));
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

Status ReadPrompts(const Json& body, OpenAiRequest& out) {
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

Status ReadEcho(const Json& body, OpenAiRequest& out) {
  BATON_RETURN_IF_ERROR(ReadBool(body, "echo", out.echo));
  if (!out.echo || !out.generation.top_logprobs.has_value()) return OkStatus();
  return WithReason(InvalidMember("echo",
                                  "echo is not supported with logprobs: the logprobs of the prompt "
                                  "are not computed"),
                    reason::kUnsupportedParameter);
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

Status ReadSampling(const Json& body, SamplingInput& out) {
  for (const SamplingField& field : kSamplingFields) {
    BATON_RETURN_IF_ERROR(Read(body, field.name, out.*field.override_value));
  }
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_k", out.top_k));
  // vLLM accepts -1 for "no limit"; here 0 means no limit.
  if (out.top_k == -1) out.top_k = 0;
  std::optional<int64_t> seed;
  BATON_RETURN_IF_ERROR(ReadInt(body, "seed", seed));
  if (seed.has_value()) out.seed = static_cast<uint64_t>(*seed);
  return ReadLogitBias(body, out);
}

}  // namespace

StatusOr<OpenAiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view text) {
  const StatusOr<Json> parsed = ParseOrderedJson("the body", text);
  if (!parsed.ok()) {
    const std::string member = TooDeepMember(parsed.status());
    return member.empty() ? parsed.status() : AtMember(parsed.status(), member);
  }
  const Json& body = *parsed;
  if (!body.is_object()) return InvalidArgument("the body must be a JSON object");
  OpenAiRequest out;
  out.kind = kind;
  GenerationRequest& generation = out.generation;
  generation.names.text = "prompt";
  generation.names.tokens = "prompt";
  generation.names.messages = "messages";
  generation.names.samples = "n";
  generation.names.sampling = "";
  if (kind == OpenAiKind::kCompletion) generation.names.top_logprobs = "logprobs";
  BATON_RETURN_IF_ERROR(CheckMembers(kind, body));
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  BATON_RETURN_IF_ERROR(kind == OpenAiKind::kChat ? ReadChat(body, out) : ReadPrompts(body, out));
  BATON_RETURN_IF_ERROR(ReadSampling(body, generation.sampling));
  BATON_RETURN_IF_ERROR(ReadStops(body, generation));
  BATON_RETURN_IF_ERROR(ReadLogprobs(kind, body, generation));
  BATON_RETURN_IF_ERROR(ReadLengths(kind, body, generation));
  BATON_RETURN_IF_ERROR(ReadSamples(body, generation));
  BATON_RETURN_IF_ERROR(ReadText(body, generation));
  if (kind == OpenAiKind::kCompletion) BATON_RETURN_IF_ERROR(ReadEcho(body, out));
  std::optional<int32_t> priority;
  BATON_RETURN_IF_ERROR(ReadInt(body, "priority", priority));
  generation.priority = priority.value_or(0);
  BATON_RETURN_IF_ERROR(ReadString(body, "cache_salt", generation.cache_salt));
  BATON_RETURN_IF_ERROR(ReadBool(body, "stream", out.stream));
  if (const Json* options = Member(body, "stream_options"); options != nullptr) {
    if (!options->is_object()) return Wrong("stream_options", "an object");
    BATON_RETURN_IF_ERROR(ReadBool(*options, "include_usage", out.include_usage));
  }
  return out;
}

}  // namespace baton::router
