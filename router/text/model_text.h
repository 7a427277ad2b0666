#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/chat_format/chat_parser.h"
#include "common/grammar/marked_formats.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"
#include "router/text/chat_formats.h"
#include "router/text/reranker.h"

namespace baton::router {

// Limits on the work for one text; no limits by default.
struct TextLimits {
  // In tokens. Text that cannot fit is refused before it is tokenised.
  int32_t context_length = std::numeric_limits<int32_t>::max();
  size_t max_tokens = SIZE_MAX;               // tokenising stops soon after this many tokens
  std::function<bool()> cancelled = nullptr;  // returns true when the client has disconnected
};

struct ModelTextOptions {
  std::string name = "";           // empty: from the model's files
  std::string chat_template = "";  // a file that replaces the model's template; empty: none
  // Absent: found in the template.
  std::optional<ToolCallFormat> calls = std::nullopt;
  std::optional<ReasoningFormat> reasoning = std::nullopt;
  // Absent: as the model's files say.
  std::optional<Pooling> pooling = std::nullopt;
  RerankFormat rerank = RerankFormat::kAuto;
};

// The router's view of the model: tokenizer, chat template and limits. Immutable, thread-safe.
class ModelText final {
 public:
  // Reads tokenizer, template and shape from the model's files.
  static StatusOr<std::unique_ptr<ModelText>> Load(const std::string& path,
                                                   const ModelTextOptions& options);

  ModelText(std::string name,
            Tokenizer tokenizer,
            std::optional<ChatTemplate> chat_template,
            std::vector<TokenId> end_tokens,
            int32_t context_length,
            int32_t vocabulary,
            const ChatFormats& formats = {},
            PromptResults results = {});

  // The prompt's tokens. Special tokens are recognised only in text that the template itself wrote.
  // Errors: InvalidArgument naming the fault of the input, also when a limit is exceeded, because a
  // retry would not help; Cancelled.
  StatusOr<std::vector<TokenId>> Encode(const GenerationRequest& request,
                                        const TextLimits& limits = {}) const;
  StatusOr<std::vector<TokenId>> EncodeText(std::string_view text,
                                            EncodeOptions options,
                                            const TextLimits& limits) const;

  // The parser for the answer to `chat`, whose tokens are `prompt`.
  ChatParserOptions ParserOptions(const ChatInput& chat,
                                  const ChatOutput& output,
                                  std::span<const TokenId> prompt) const;
  // Where `prompt` leaves the model's reasoning. `chat`: what the prompt was made of; null: text.
  enum class Reasoning : uint8_t { kNotBegun, kInside, kOver };
  Reasoning ReasoningAfter(const ChatInput* chat, std::span<const TokenId> prompt) const;
  const ChatFormats& formats() const { return formats_; }
  const PromptResults& results() const { return results_; }
  // The same formats, with those of their markers that are special tokens.
  const MarkedFormats& marked_formats() const { return marked_formats_; }
  // Tokens that are markers of the formats: ChatParser needs them in the text.
  std::span<const TokenId> chat_tokens() const { return chat_tokens_; }

  const std::string& name() const { return name_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Tokens that end a generation, unless the request ignores them.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  int32_t context_length() const { return context_length_; }
  // Token ids below this number are valid.
  int32_t vocabulary() const { return vocabulary_; }

 private:
  StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text,
                                              const GenerationRequest& request,
                                              const TextLimits& limits) const;
  StatusOr<std::vector<TokenId>> EncodeChat(const ChatInput& chat,
                                            const GenerationRequest& request,
                                            const TextLimits& limits) const;
  StatusOr<std::vector<TokenId>> EncodePair(const RerankInput& pair,
                                            const TextLimits& limits) const;
  StatusOr<std::vector<TokenId>> EncodeSegments(std::span<const TextSegment> segments,
                                                bool add_special,
                                                const TextLimits& limits) const;
  Status CheckRoles(const nlohmann::ordered_json& context,
                    const RenderOptions& options,
                    const FieldNames& names) const;
  Status CheckLength(size_t bytes, const TextLimits& limits) const;

  const std::string name_;
  const Tokenizer tokenizer_;
  const std::optional<ChatTemplate> template_;
  const std::vector<TokenId> end_tokens_;
  const int32_t context_length_;
  const int32_t vocabulary_;
  const ChatFormats formats_;
  const PromptResults results_;
  std::vector<TokenId> chat_tokens_;
  std::vector<std::string> known_roles_;  // the template prints their messages
  MarkedFormats marked_formats_;
};

}  // namespace baton::router
