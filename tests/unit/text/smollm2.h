#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/text/gguf_tokenizer.h"
#include "common/text/tokenizer.h"

namespace baton {

// The tokenizer keys of SmolLM2-135M-Instruct's GGUF file, from tests/data/text/smollm2.tokenizer.
GgufTokenizerFields SmolLm2Fields();
Tokenizer SmolLm2Tokenizer();

// The content of tests/data/text/<name>.
std::string ReadTestText(const std::string& name);
nlohmann::ordered_json ReadTestJson(const std::string& name);

}  // namespace baton
