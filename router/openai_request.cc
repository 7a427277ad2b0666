#include "router/openai_request.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace baton::router {
namespace {

using Json = nlohmann::json;

constexpr int32_t kDefaultCompletionTokens = 16;

// The member, or null when it is absent or null.
const Json* Member(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Status Wrong(const char* name, std::string_view wanted) {
  return InvalidArgument("{} must be {}", name, wanted);
}

Status Read(const Json& object, const char* name, std::optional<float>& out) {
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
  return InvalidArgument("{} is {}; it is out of range", name, value->dump());
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

StatusOr<std::vector<TokenId>> ReadTokens(const char* name, const Json& value) {
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
  if (!bias->is_object()) return Wrong("logit_bias", "an object of token id: bias");
  for (const auto& [key, value] : bias->items()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || !value.is_number()) {
      return Wrong("logit_bias", "an object of token id: bias");
    }
    out.logit_bias.push_back({token, static_cast<float>(value.get<double>())});
  }
  return OkStatus();
}

// The text of a message: a string, or an array of text parts.
StatusOr<std::string> ReadContent(const Json& content, size_t index) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return std::string();
  std::string text;
  if (content.is_array()) {
    for (const Json& part : content) {
      const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                           part.contains("text") && part["text"].is_string();
      if (!is_text)
        return InvalidArgument("messages[{}].content has a part that is no text", index);
      text += part["text"].get<std::string>();
    }
    return text;
  }
  return InvalidArgument("messages[{}].content must be a string or an array of text parts", index);
}

Status ReadMessages(const Json& body, GenerationRequest& out) {
  const Json* messages = Member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return Wrong("messages", "an array of at least one message");
  }
  ChatInput chat;
  for (size_t i = 0; i < messages->size(); ++i) {
    Json message = (*messages)[i];
    if (!message.is_object()) return InvalidArgument("messages[{}] must be an object", i);
    const Json* role = Member(message, "role");
    if (role == nullptr || !role->is_string()) {
      return InvalidArgument("messages[{}].role must be a string", i);
    }
    ChatTurn turn;
    turn.role = role->get<std::string>();
    BATON_ASSIGN_OR_RETURN(turn.content, ReadContent(message.value("content", Json()), i));
    message.erase("role");
    message.erase("content");
    if (!message.empty()) turn.extra_json = message.dump();
    chat.turns.push_back(std::move(turn));
  }
  if (const Json* tools = Member(body, "tools"); tools != nullptr) {
    if (!tools->is_array()) return Wrong("tools", "an array");
    const Json* choice = Member(body, "tool_choice");
    const bool offered = choice == nullptr || *choice != "none";
    if (!tools->empty() && offered) chat.tools_json = tools->dump();
  }
  if (const Json* arguments = Member(body, "chat_template_kwargs"); arguments != nullptr) {
    if (!arguments->is_object()) return Wrong("chat_template_kwargs", "an object");
    chat.arguments_json = arguments->dump();
  }
  out.input = std::move(chat);
  return OkStatus();
}

Status ReadPrompt(const Json& body, GenerationRequest& out) {
  constexpr const char* kWanted =
      "one prompt: a string, an array of token ids, or an array of one of these";
  const Json* prompt = Member(body, "prompt");
  if (prompt == nullptr) return Wrong("prompt", kWanted);
  const bool wrapped = prompt->is_array() && prompt->size() == 1 && !prompt->front().is_number();
  const Json& one = wrapped ? prompt->front() : *prompt;
  if (one.is_string()) {
    out.input = one.get<std::string>();
    return OkStatus();
  }
  if (!one.is_array()) return Wrong("prompt", kWanted);
  const StatusOr<std::vector<TokenId>> tokens = ReadTokens("prompt", one);
  if (!tokens.ok()) return Wrong("prompt", kWanted);
  out.input = *tokens;
  return OkStatus();
}

Status ReadLogprobs(OpenAiKind kind, const Json& body, GenerationRequest& out) {
  if (kind == OpenAiKind::kCompletion) return ReadInt(body, "logprobs", out.top_logprobs);
  bool wanted = false;
  BATON_RETURN_IF_ERROR(ReadBool(body, "logprobs", wanted));
  std::optional<int32_t> top;
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_logprobs", top));
  if (top.has_value() && !wanted) return InvalidArgument("top_logprobs needs logprobs: true");
  if (wanted) out.top_logprobs = top.value_or(0);
  return OkStatus();
}

// What would change the answer, and is not there.
Status RefuseUnsupported(const Json& body) {
  if (const Json* format = Member(body, "response_format"); format != nullptr) {
    if (!format->is_object() || format->value("type", Json()) != "text") {
      return InvalidArgument("response_format: only {{\"type\": \"text\"}} is supported");
    }
  }
  if (const Json* choice = Member(body, "tool_choice");
      choice != nullptr && *choice != "auto" && *choice != "none") {
    return InvalidArgument("tool_choice: only \"auto\" and \"none\" are supported");
  }
  if (const Json* best = Member(body, "best_of"); best != nullptr && *best != 1) {
    return InvalidArgument("best_of is not supported");
  }
  bool echo = false;
  BATON_RETURN_IF_ERROR(ReadBool(body, "echo", echo));
  if (echo) return InvalidArgument("echo is not supported");
  if (const Json* suffix = Member(body, "suffix"); suffix != nullptr && *suffix != "") {
    return InvalidArgument("suffix is not supported");
  }
  return OkStatus();
}

Status ReadSampling(const Json& body, SamplingInput& out) {
  BATON_RETURN_IF_ERROR(Read(body, "temperature", out.temperature));
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_k", out.top_k));
  // Elsewhere, -1 means all.
  if (out.top_k == -1) out.top_k = 0;
  BATON_RETURN_IF_ERROR(Read(body, "top_p", out.top_p));
  BATON_RETURN_IF_ERROR(Read(body, "min_p", out.min_p));
  BATON_RETURN_IF_ERROR(Read(body, "repetition_penalty", out.repetition_penalty));
  BATON_RETURN_IF_ERROR(Read(body, "presence_penalty", out.presence_penalty));
  BATON_RETURN_IF_ERROR(Read(body, "frequency_penalty", out.frequency_penalty));
  std::optional<int64_t> seed;
  BATON_RETURN_IF_ERROR(ReadInt(body, "seed", seed));
  if (seed.has_value()) out.seed = static_cast<uint64_t>(*seed);
  return ReadLogitBias(body, out);
}

}  // namespace

StatusOr<OpenAiRequest> ParseOpenAiRequest(OpenAiKind kind, std::string_view text) {
  const Json body = Json::parse(text, nullptr, false);
  if (body.is_discarded()) return InvalidArgument("the body is not valid JSON in UTF-8");
  if (!body.is_object()) return InvalidArgument("the body must be a JSON object");
  OpenAiRequest out;
  out.kind = kind;
  GenerationRequest& generation = out.generation;
  generation.names = {
      .text = "prompt", .tokens = "prompt", .messages = "messages", .samples = "n", .sampling = ""};
  BATON_RETURN_IF_ERROR(RefuseUnsupported(body));
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  BATON_RETURN_IF_ERROR(kind == OpenAiKind::kChat ? ReadMessages(body, generation)
                                                  : ReadPrompt(body, generation));
  BATON_RETURN_IF_ERROR(ReadSampling(body, generation.sampling));
  BATON_RETURN_IF_ERROR(ReadStops(body, generation));
  BATON_RETURN_IF_ERROR(ReadLogprobs(kind, body, generation));
  BATON_RETURN_IF_ERROR(ReadInt(body, "max_tokens", generation.max_tokens));
  BATON_RETURN_IF_ERROR(ReadInt(body, "max_completion_tokens", generation.max_tokens));
  if (kind == OpenAiKind::kCompletion && !generation.max_tokens.has_value()) {
    generation.max_tokens = kDefaultCompletionTokens;
  }
  std::optional<int32_t> number;
  BATON_RETURN_IF_ERROR(ReadInt(body, "n", number));
  if (number.has_value() && *number < 1)
    return InvalidArgument("n is {}; it must be at least 1", *number);
  generation.samples = std::exchange(number, std::nullopt).value_or(1);
  BATON_RETURN_IF_ERROR(ReadInt(body, "min_tokens", number));
  generation.min_tokens = std::exchange(number, std::nullopt).value_or(0);
  BATON_RETURN_IF_ERROR(ReadInt(body, "priority", number));
  generation.priority = number.value_or(0);
  BATON_RETURN_IF_ERROR(ReadBool(body, "ignore_eos", generation.ignore_eos));
  BATON_RETURN_IF_ERROR(ReadString(body, "cache_salt", generation.cache_salt));
  generation.skip_special_tokens = true;
  BATON_RETURN_IF_ERROR(ReadBool(body, "stream", out.stream));
  if (const Json* options = Member(body, "stream_options"); options != nullptr) {
    if (!options->is_object()) return Wrong("stream_options", "an object");
    BATON_RETURN_IF_ERROR(ReadBool(*options, "include_usage", out.include_usage));
  }
  return out;
}

}  // namespace baton::router
