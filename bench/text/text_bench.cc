#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/mapped_file.h"
#include "common/text/detokenizer.h"
#include "common/text/hf_tokenizer.h"
#include "common/text/tokenizer.h"

// text_bench TOKENIZER.json TEXT: measures how fast one core tokenises and detokenises the text.
// Prints one JSON object. Each figure is the best of kRuns runs.

namespace baton {
namespace {

constexpr int kRuns = 5;

template <class Body>
double BestSeconds(Body body) {
  const SteadyClock clock;
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const Time start = clock.Now();
    body();
    best = std::min(best, ToSeconds(clock.Now() - start));
  }
  return best;
}

Status Run(const std::string& tokenizer_path, const std::string& text_path) {
  BATON_ASSIGN_OR_RETURN(const std::string json, ReadFile(tokenizer_path));
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(text_path));
  const SteadyClock clock;
  const Time start = clock.Now();
  BATON_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromJson(json, ""));
  BATON_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Create(std::move(spec)));
  const double load = ToSeconds(clock.Now() - start);

  std::vector<TokenId> tokens;
  const double encode = BestSeconds([&] { tokens = tokenizer.Encode(text, {}); });
  std::vector<TokenId> prompt(
      tokens.begin(),
      tokens.begin() + static_cast<ptrdiff_t>(std::min<size_t>(tokens.size(), 100'000)));
  const std::string prompt_text = tokenizer.Decode(prompt, false);
  const double encode_prompt = BestSeconds([&] { prompt = tokenizer.Encode(prompt_text, {}); });
  const double decode = BestSeconds([&] { tokenizer.Decode(tokens, true); });
  const std::string run_of_a(1'000'000, 'a');
  const double one_word = BestSeconds([&] { tokenizer.Encode(run_of_a, {}); });

  fmt::print(
      "{{\"bytes\": {}, \"tokens\": {}, \"load_s\": {:.4f}, \"encode_mb_per_s\": {:.2f}, "
      "\"prompt_tokens\": {}, "
      "\"prompt_ms\": {:.2f}, \"decode_tokens_per_s\": {:.0f}, \"one_word_mb_per_s\": {:.2f}}}\n",
      text.size(),
      tokens.size(),
      load,
      static_cast<double>(text.size()) / encode / 1e6,
      prompt.size(),
      encode_prompt * 1e3,
      static_cast<double>(tokens.size()) / decode,
      static_cast<double>(run_of_a.size()) / one_word / 1e6);
  return OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: text_bench TOKENIZER.json TEXT\n", stderr);
    return 2;
  }
  const baton::Status status = baton::Run(argv[1], argv[2]);
  if (!status.ok()) fmt::print(stderr, "{}\n", baton::Message(status));
  return status.ok() ? 0 : 1;
}
