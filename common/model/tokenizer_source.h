#pragma once

#include <string>

#include "common/base/status.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// Reads the tokenizer of the model at `path` (see LocateModel) without reading weights: from GGUF
// metadata, or from tokenizer.json and tokenizer_config.json. The end tokens are those of the
// tokenizer, followed by those of the model's configuration. Errors name file and key.
StatusOr<TokenizerSpec> LoadTokenizerSpec(const std::string& path);

// A chat template in Jinja.
struct ChatTemplateSource {
  std::string text;
  std::string origin;  // for errors: the file, and the key if the template is a value in the file
};

// Reads the model's chat template. In a GGUF file it is tokenizer.chat_template. In a directory it
// is the first of: chat_template.jinja; chat_template in tokenizer_config.json (the one named
// "default" when there are several); chat_template.json. NotFound when the model has none, as is
// usual for base models.
StatusOr<ChatTemplateSource> LoadChatTemplate(const std::string& path);

}  // namespace baton
