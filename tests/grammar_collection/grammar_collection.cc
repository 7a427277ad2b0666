// Judges JSON schemas as routers and workers do.
//   grammar_collection [OUTPUTS] < PATHS
// Each line of the input is the path of a JSON file whose member "schema" is a schema. "tests", if
// there are some, are [{"data": …, "valid": true}]. Prints a line for each file:
//   {"file": …, "refused": message or null, "accepted": {"valid": [1, 2], "invalid": [0, 1]}}
// "accepted" counts the test data that the grammar allows when they are written without white
// space. OUTPUTS is the number of random outputs of each grammar, which are lines
// {"schema": …, "output": …}. collection.py draws the files, and sums up what this program prints.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of a random output. Longer ones are left out.
constexpr int kMaxOutput = 1000;

class Judge {
 public:
  explicit Judge(int outputs) : outputs_(outputs) {}

  void Print(const std::string& path) {
    Json line = {{"file", path}, {"refused", nullptr}};
    const auto text = ReadFile(path);
    const auto file = text.ok() ? ParseOrderedJson("file", *text) : StatusOr<Json>(text.status());
    const auto grammar =
        file.ok() ? Compile(*file) : StatusOr<std::shared_ptr<const Grammar>>(file.status());
    if (grammar.ok()) {
      line["accepted"] = Accepted(**grammar, file->value("tests", Json::array()));
    } else {
      line["refused"] = std::string(Message(grammar.status()));
    }
    Write(line);
    for (int i = 0; grammar.ok() && i < outputs_; ++i) {
      const auto output = RandomOutput(**grammar, tokenizer_, random_, kMaxOutput);
      if (output.has_value()) Write({{"schema", (*file)["schema"]}, {"output", *output}});
    }
  }

 private:
  static void Write(const Json& line) {
    std::printf("%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }

  StatusOr<std::shared_ptr<const Grammar>> Compile(const Json& file) {
    if (!file.contains("schema")) return InvalidArgument("the file has no member \"schema\"");
    BATON_ASSIGN_OR_RETURN(GrammarPart part, JsonSchemaPart(file["schema"]));
    const std::string spec = GrammarSpec(std::move(part));
    BATON_RETURN_IF_ERROR(CheckGrammar(spec));
    return TryCompile(*compiler_, spec);
  }

  Json Accepted(const Grammar& grammar, const Json& tests) const {
    std::array<std::array<int, 2>, 2> counts = {};  // by validity: accepted ones, and all
    for (const Json& test : tests) {
      auto& [accepted, all] = counts[test.value("valid", false) ? 1 : 0];
      ++all;
      if (Accepts(grammar, test["data"].dump())) ++accepted;
    }
    return {{"valid", counts[1]}, {"invalid", counts[0]}};
  }

  bool Accepts(const Grammar& grammar, std::string_view text) const {
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    for (const char c : text) {
      if (!matcher->Accept(static_cast<uint8_t>(c))) return false;
    }
    return matcher->Accept(tokenizer_.spec().eos[0]);
  }

  const int outputs_;
  const Tokenizer tokenizer_ = BytesAnd({});
  const std::unique_ptr<GrammarCompiler> compiler_ = CompilerFor(tokenizer_);
  std::mt19937_64 random_{1};
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::Judge judge(argc > 1 ? std::atoi(argv[1]) : 0);
  for (std::string path; std::getline(std::cin, path);) judge.Print(path);
  return 0;
}
