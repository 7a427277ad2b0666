#include "router/api/embeddings_answer.h"

#include <bit>
#include <cmath>
#include <iterator>

#include <absl/strings/escaping.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "router/api/answer_json.h"
#include "router/api/openai_answer.h"

namespace baton::router {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 has the numbers as in memory");

// The numbers are written as float32, the shortest form that reads back the same, which is half as
// long as that of float64.
void Append(std::span<const float> embedding, bool base64, std::string& out) {
  if (base64) {
    std::string text;
    const auto* const bytes = reinterpret_cast<const char*>(embedding.data());
    absl::Base64Escape({bytes, embedding.size_bytes()}, &text);
    fmt::format_to(std::back_inserter(out), "\"{}\"", text);
    return;
  }
  out += '[';
  for (size_t i = 0; i < embedding.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", embedding[i]);
  }
  out += ']';
}

}  // namespace

std::vector<float> EmbeddingOf(std::span<const float> pooled, const EmbeddingForm& form) {
  if (form.dimensions > 0) pooled = pooled.first(static_cast<size_t>(form.dimensions));
  std::vector<float> embedding(pooled.begin(), pooled.end());
  if (!form.normalize) return embedding;
  double squares = 0;
  for (const float number : embedding) squares += double{number} * number;
  if (squares == 0) return embedding;
  const double length = std::sqrt(squares);
  for (float& number : embedding) number = static_cast<float>(number / length);
  return embedding;
}

std::string EmbeddingsAnswer::Body(const std::vector<ApiChoice>& choices,
                                   const GenerationEnd& end) {
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    fmt::format_to(std::back_inserter(body),
                   R"({}{{"object":"embedding","index":{},"embedding":)",
                   i == 0 ? "" : ",",
                   i);
    Append(EmbeddingOf(choices[i].pooled, form_), form_.base64, body);
    body += '}';
  }
  const nlohmann::ordered_json usage = {{"prompt_tokens", end.prompt_tokens},
                                        {"total_tokens", end.prompt_tokens}};
  fmt::format_to(
      std::back_inserter(body), R"(],"model":{},"usage":{}}})", Dump(model_), Dump(usage));
  return body;
}

std::string EmbeddingsAnswer::Error(const Status& status) {
  return OpenAiError(status);
}

}  // namespace baton::router
