#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

// What the router knows of the model: how text becomes tokens and back. Immutable, thread-safe.
class ModelText final {
 public:
  // Reads tokenizer, template and shape from the model's files. `name` empty: from the file.
  static StatusOr<std::unique_ptr<ModelText>> Load(const std::string& path,
                                                   const std::string& name);

  ModelText(std::string name,
            Tokenizer tokenizer,
            std::optional<ChatTemplate> chat_template,
            std::vector<TokenId> end_tokens,
            int32_t context_length,
            int32_t vocabulary);

  // The prompt's tokens; special tokens count only where the template itself puts them. Errors:
  // InvalidArgument naming what is wrong with the input.
  StatusOr<std::vector<TokenId>> Encode(const GenerationRequest& request) const;
  StatusOr<std::vector<TokenId>> EncodeChat(const ChatInput& chat,
                                            bool add_special_tokens = false) const;

  const std::string& name() const { return name_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // End a generation unless the request ignores them.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  int32_t context_length() const { return context_length_; }
  // Ids below this are valid.
  int32_t vocabulary() const { return vocabulary_; }

 private:
  StatusOr<std::vector<TokenId>> EncodeText(const std::string& text,
                                            const GenerationRequest& request) const;

  const std::string name_;
  const Tokenizer tokenizer_;
  const std::optional<ChatTemplate> template_;
  const std::vector<TokenId> end_tokens_;
  const int32_t context_length_;
  const int32_t vocabulary_;
};

}  // namespace baton::router
