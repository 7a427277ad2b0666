// Measures masks and the compilation of schemas, on one core, and prints a JSON object.
//   grammar_bench --cases FILE [--vocabulary 128000] [--seed 1] [--write_vocabulary FILE]
// FILE is a JSON array of {"schema": …, "document": "…"}. For each case the schema is compiled, and
// the mask is computed before each token of the document, which is divided greedily into the
// longest tokens. Times are processor times, so that other programs disturb them little. compare.py
// makes the cases and runs this program beside llguidance.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/grammar/bench_grammar.h"
#include "common/base/quantile.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "kernels/token_mask.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

double MicrosOf(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Divides text into the longest tokens, from its beginning.
class GreedyTokens {
 public:
  explicit GreedyTokens(const Tokenizer& tokenizer) {
    for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
      const auto token = static_cast<TokenId>(i);
      if (tokenizer.is_special(token) || tokenizer.kind(token) == PieceKind::kControl) continue;
      const std::string_view piece = tokenizer.piece(token);
      tokens_.emplace(piece, token);
      longest_ = std::max(longest_, piece.size());
    }
  }

  std::vector<TokenId> Of(std::string_view text) const {
    std::vector<TokenId> out;
    while (!text.empty()) {
      size_t bytes = std::min(longest_, text.size());
      auto found = tokens_.find(text.substr(0, bytes));
      while (found == tokens_.end()) found = tokens_.find(text.substr(0, --bytes));
      out.push_back(found->second);
      text.remove_prefix(bytes);
    }
    return out;
  }

 private:
  std::unordered_map<std::string_view, TokenId> tokens_;
  size_t longest_ = 1;
};

struct Arguments {
  std::string cases;
  std::string write_vocabulary;
  int32_t vocabulary = 128'000;
  uint64_t seed = 1;
};

StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--cases") {
      arguments.cases = argv[i + 1];
    } else if (name == "--write_vocabulary") {
      arguments.write_vocabulary = argv[i + 1];
    } else if (name == "--vocabulary") {
      arguments.vocabulary = std::atoi(argv[i + 1]);
    } else if (name == "--seed") {
      arguments.seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      return InvalidArgument("{} is not an option of grammar_bench", name);
    }
  }
  if (arguments.cases.empty()) return InvalidArgument("--cases FILE is missing");
  return arguments;
}

void WriteVocabulary(const Tokenizer& tokenizer, const std::string& path) {
  Json pieces = Json::array();
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    std::string hex;
    for (const char c : tokenizer.piece(static_cast<TokenId>(i))) {
      hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
    }
    pieces.push_back(hex);
  }
  std::ofstream(path) << pieces.dump();
}

Json Summary(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return {{"count", values.size()},
          {"mean", values.empty() ? 0 : sum / static_cast<double>(values.size())},
          {"p50", Quantile(values, 0.5)},
          {"p99", Quantile(values, 0.99)},
          {"max", values.empty() ? 0 : *std::ranges::max_element(values)}};
}

class Bench {
 public:
  Bench(const Tokenizer& tokenizer, GrammarCompiler& compiler)
      : tokenizer_(tokenizer), compiler_(compiler), greedy_(tokenizer) {}

  void Run(const Json& one) {
    const std::string schema = one.at("schema").dump();
    const double begin = MicrosOf(CLOCK_PROCESS_CPUTIME_ID);
    const CompiledGrammar grammar = CompileSchema(compiler_, schema);
    if (!grammar.ok()) {
      refused_.push_back(std::string(Message(grammar.status())));
      return;
    }
    const auto first = (*grammar)->NewMatcher(tokenizer_.spec().eos);
    first->FillMask(mask_.words());
    first_ms_.push_back((MicrosOf(CLOCK_PROCESS_CPUTIME_ID) - begin) / 1e3);
    if (one.contains("document")) Walk(**grammar, one["document"].get<std::string>());
  }

  Json Result() const {
    return {{"first_mask_ms", Summary(first_ms_)},
            {"mask_us", Summary(mask_us_)},
            {"accept_us", Summary(accept_us_)},
            {"refused", refused_},
            {"broken_documents", broken_}};
  }

 private:
  void Walk(const Grammar& grammar, const std::string& document) {
    const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
    std::vector<TokenId> tokens = greedy_.Of(document);
    tokens.push_back(tokenizer_.spec().eos[0]);
    for (const TokenId token : tokens) {
      const double begin = MicrosOf(CLOCK_THREAD_CPUTIME_ID);
      matcher->FillMask(mask_.words());
      const double filled = MicrosOf(CLOCK_THREAD_CPUTIME_ID);
      const bool allowed = (mask_.words()[token / 32] >> token % 32 & 1) != 0;
      if (!allowed || !matcher->Accept(token)) {
        broken_.push_back(document.substr(0, 64));
        return;
      }
      accept_us_.push_back(MicrosOf(CLOCK_THREAD_CPUTIME_ID) - filled);
      mask_us_.push_back(filled - begin);
    }
  }

  const Tokenizer& tokenizer_;
  GrammarCompiler& compiler_;
  const GreedyTokens greedy_;
  TokenMask mask_{static_cast<int32_t>(tokenizer_.vocab_size())};
  std::vector<double> first_ms_;
  std::vector<double> mask_us_;
  std::vector<double> accept_us_;
  std::vector<std::string> refused_;
  std::vector<std::string> broken_;
};

Status Main(int argc, char** argv) {
  BATON_ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  std::ifstream file(arguments.cases);
  if (!file) return InvalidArgument("the file {} cannot be read", arguments.cases);
  const Json cases = Json::parse(file);
  const Tokenizer tokenizer = SyntheticVocabulary(arguments.vocabulary, arguments.seed);
  if (!arguments.write_vocabulary.empty()) WriteVocabulary(tokenizer, arguments.write_vocabulary);
  BATON_ASSIGN_OR_RETURN(const auto compiler,
                         MakeGrammarCompiler(tokenizer, {.vocabulary = arguments.vocabulary}));
  Bench bench(tokenizer, *compiler);
  // Takes the page faults and starts the compiler's thread.
  (void)CompileSchema(*compiler, R"({"type": "object"})");
  for (const Json& one : cases) bench.Run(one);
  Json result = {{"vocabulary", arguments.vocabulary}, {"seed", arguments.seed}};
  result.update(bench.Result());
  std::printf("%s\n", result.dump().c_str());
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const baton::Status status = baton::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "grammar_bench: %s\n", status.ToString().c_str());
  return 1;
}
