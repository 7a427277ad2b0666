#include "tests/unit/text/smollm2.h"

#include <sstream>

#include "common/base/check.h"
#include "common/base/mapped_file.h"

namespace baton {

std::string ReadTestText(const std::string& name) {
  auto text = ReadFile(std::string(BATON_TEST_DATA) + "/text/" + name);
  BATON_CHECK(text.ok(), "{}", Message(text.status()));
  return *std::move(text);
}

nlohmann::ordered_json ReadTestJson(const std::string& name) {
  return nlohmann::ordered_json::parse(ReadTestText(name));
}

GgufTokenizerFields SmolLm2Fields() {
  constexpr int kFirstMerged = 252;
  GgufTokenizerFields fields;
  fields.model = "gpt2";
  fields.pre = "smollm";
  std::istringstream in(ReadTestText("smollm2.tokenizer"));
  std::string line;
  while (std::getline(in, line)) {
    const size_t space = line.find(' ');
    if (fields.tokens.size() < kFirstMerged) {
      fields.token_types.push_back(std::stoi(line.substr(0, space)));
      fields.tokens.push_back(line.substr(space + 1));
    } else {
      fields.token_types.push_back(1);
      fields.tokens.push_back(line.substr(0, space) + line.substr(space + 1));
      fields.merges.push_back(line);
    }
  }
  fields.bos_token_id = 1;
  fields.eos_token_id = 2;
  fields.unknown_token_id = 0;
  fields.padding_token_id = 2;
  fields.add_bos_token = false;
  fields.add_space_prefix = false;
  return fields;
}

Tokenizer SmolLm2Tokenizer() {
  auto spec = TokenizerSpecFromGguf(SmolLm2Fields());
  BATON_CHECK(spec.ok(), "{}", Message(spec.status()));
  auto tokenizer = Tokenizer::Create(*std::move(spec));
  BATON_CHECK(tokenizer.ok(), "{}", Message(tokenizer.status()));
  return *std::move(tokenizer);
}

}  // namespace baton
