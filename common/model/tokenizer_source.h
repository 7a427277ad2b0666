#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// The tokenizer of the model at `path` (see LocateModel), without touching its weights: from GGUF
// metadata, or from tokenizer.json and tokenizer_config.json. Its end tokens are the tokenizer's
// own, followed by those that the model's configuration names. Errors name file and key.
StatusOr<TokenizerSpec> LoadTokenizerSpec(const std::string& path);

// A chat template in Jinja.
struct ChatTemplateSource {
  std::string text;
  std::string origin;  // the file, and the key where it is inside one: for errors
};

// The model's chat template: GGUF's tokenizer.chat_template; or chat_template.jinja,
// else chat_template in tokenizer_config.json (the one named "default" where there are several),
// else chat_template.json. NotFound when the model has none, as base models do not.
StatusOr<ChatTemplateSource> LoadChatTemplate(const std::string& path);

}  // namespace baton
