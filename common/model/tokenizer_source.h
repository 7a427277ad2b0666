#pragma once

#include <string>

#include "common/base/status.h"
#include "common/model/model_spec.h"
#include "common/text/tokenizer_spec.h"

namespace baton {

// The path of the tokenizer of a Hugging Face directory: the first of tokenizer.json, tekken.json,
// tiktoken.model and tokenizer.model that is there, else that of tokenizer.json.
std::string TokenizerFileIn(const std::string& directory);

// Reads the tokenizer of the model at `path` (see LocateModel) without reading weights: from GGUF
// metadata, or from TokenizerFileIn and tokenizer_config.json. The end tokens are those of the
// tokenizer, followed by those of the model's configuration. Errors name file and key.
StatusOr<TokenizerSpec> LoadTokenizerSpec(const std::string& path);

// The number of token ids that a model with this tokenizer uses: those of the tokenizer. Further
// rows of the embedding and the head are padding: nobody may use their ids. Errors: InvalidArgument
// with both numbers when the tokenizer has more ids than the embedding has rows; it begins with
// `path`.
StatusOr<int32_t> CountTokenIds(const std::string& path,
                                const ModelSpec& model,
                                const TokenizerSpec& tokenizer);

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
