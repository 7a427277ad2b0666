#include "common/grammar/xgrammar/grammar_compiler.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/grammar/grammar_spec.h"
#include "kernels/token_mask.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/unit/grammar/grammar_walk.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

class GrammarCompilerTest : public ::testing::Test {
 protected:
  GrammarCompilerTest()
      : tokenizer_(BytesAnd({"ab",
                             "abc",
                             "{\"",
                             "\": ",
                             "\"}",
                             "true",
                             "fal",
                             "se",
                             "12",
                             "}}",
                             ", \"",
                             "\xc3\xa9",
                             "yes",
                             "no",
                             " no"})),
        vocabulary_(static_cast<int32_t>(tokenizer_.vocab_size()) + 7),
        compiler_(MakeGrammarCompiler(tokenizer_, {.vocabulary = vocabulary_}).value()) {}

  TokenId end() const { return tokenizer_.spec().eos[0]; }

  std::shared_ptr<const Grammar> Compile(const StatusOr<GrammarPart>& part) {
    EXPECT_TRUE(part.ok()) << part.status();
    return CompileNow(*compiler_, GrammarSpec(*part));
  }
  std::shared_ptr<const Grammar> OfSchema(const char* schema) {
    return Compile(JsonSchemaPart(Json::parse(schema)));
  }
  std::vector<uint32_t> Mask(const Grammar& grammar, const std::vector<TokenId>& tokens) {
    return MaskAfter(grammar, tokens, tokenizer_.spec().eos, vocabulary_);
  }

  // The mask after `tokens` against the grammar's own answer for each token.
  void ExpectExactMask(const Grammar& grammar, const std::vector<TokenId>& tokens) {
    const std::vector<uint32_t> mask = Mask(grammar, tokens);
    for (TokenId token = 0; token < vocabulary_; ++token) {
      const auto matcher = grammar.NewMatcher(tokenizer_.spec().eos);
      for (const TokenId before : tokens) ASSERT_TRUE(matcher->Accept(before));
      const bool known = tokenizer_.Contains(token);
      ASSERT_EQ(Allows(mask, token), known && matcher->Accept(token)) << "token " << token;
    }
  }

  const Tokenizer tokenizer_;
  const int32_t vocabulary_;  // logits beyond the tokenizer's tokens are never allowed
  const std::unique_ptr<GrammarCompiler> compiler_;
};

// The rule of choices is so simple that the test knows which tokens are right.
TEST_F(GrammarCompilerTest, AllowsExactlyTheBeginningsOfChoices) {
  const std::vector<std::string> choices = {"yes", "no", "nothing", "abcd", "ab", "\xc3\xa9t"};
  const auto grammar = Compile(ChoicePart(choices));
  std::set<std::string> seen = {""};
  std::vector<std::pair<std::string, std::vector<TokenId>>> waiting = {{"", {}}};
  while (!waiting.empty()) {
    const auto [text, tokens] = std::move(waiting.back());
    waiting.pop_back();
    const std::vector<uint32_t> mask = Mask(*grammar, tokens);
    for (TokenId token = 0; token < vocabulary_; ++token) {
      bool right = false;
      if (token == end()) {
        right = std::ranges::count(choices, text) > 0;
      } else if (tokenizer_.Contains(token) && !tokenizer_.is_special(token)) {
        const std::string next = text + std::string(tokenizer_.piece(token));
        right = std::ranges::any_of(choices, [&](auto& one) { return one.starts_with(next); });
        if (right && seen.insert(next).second) {
          waiting.emplace_back(next, tokens);
          waiting.back().second.push_back(token);
        }
      }
      ASSERT_EQ(Allows(mask, token), right) << "token " << token << " after '" << text << "'";
    }
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST_F(GrammarCompilerTest, MasksAreExactAtEveryStepOfRandomOutputs) {
  const char* const schemas[] = {
      R"({"type": "object", "properties": {"ab": {"type": "boolean"}, "n": {"type": "integer"}}, "required": ["ab"]})",
      R"({"type": "array", "items": {"type": ["string", "null"]}, "minItems": 1, "maxItems": 3})",
      R"({"anyOf": [{"const": "yes"}, {"type": "number", "minimum": 1, "maximum": 12}]})",
      R"({"type": "object", "additionalProperties": {"type": "integer"}})"};
  std::mt19937_64 random(7);
  for (const char* schema : schemas) {
    SCOPED_TRACE(schema);
    const auto grammar = OfSchema(schema);
    for (int output = 0; output < 2; ++output) {
      std::vector<TokenId> tokens;
      for (int step = 0; step < 12; ++step) {
        ASSERT_NO_FATAL_FAILURE(ExpectExactMask(*grammar, tokens));
        const std::vector<uint32_t> mask = Mask(*grammar, tokens);
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < vocabulary_; ++token) {
          if (Allows(mask, token)) allowed.push_back(token);
        }
        ASSERT_FALSE(allowed.empty());
        const TokenId token = allowed[random() % allowed.size()];
        if (token == end()) break;
        tokens.push_back(token);
      }
    }
  }
}

TEST_F(GrammarCompilerTest, RandomOutputsMatchTheRegularExpression) {
  std::mt19937_64 random(3);
  for (const char* pattern : {"[A-Z]{3}-[0-9]{2,4}", "(ab|c)+x?", "\\d+(\\.\\d{2})?"}) {
    const auto grammar = Compile(RegexPart(pattern));
    const std::regex expected(pattern);
    for (int i = 0; i < 50; ++i) {
      const auto text = RandomOutput(*grammar, tokenizer_, random);
      ASSERT_TRUE(text.has_value());
      EXPECT_TRUE(std::regex_match(*text, expected)) << *text << " and " << pattern;
    }
  }
}

TEST_F(GrammarCompilerTest, NothingFollowsAStopTokenAndOthersMayStopInstead) {
  const auto grammar = Compile(RegexPart("a"));
  const TokenId other = tokenizer_.Find("yes").value();
  const std::vector<TokenId> stops = {other};
  std::vector<uint32_t> mask = MaskAfter(*grammar, {'a'}, stops, vocabulary_);
  EXPECT_TRUE(Allows(mask, other));
  EXPECT_FALSE(Allows(mask, end()));
  mask = MaskAfter(*grammar, {}, stops, vocabulary_);
  EXPECT_FALSE(Allows(mask, other));
  mask = MaskAfter(*grammar, {'a', other}, stops, vocabulary_);
  EXPECT_TRUE(std::ranges::all_of(mask, [](uint32_t word) { return word == 0; }));
}

// Compiles grammars for several clients. The first grammar is held until Release.
class CompileQueueTest : public GrammarCompilerTest {
 protected:
  static constexpr size_t kMaxWaiting = 20;

  CompileQueueTest()
      : fair_(
            MakeGrammarCompiler(tokenizer_, {.vocabulary = vocabulary_, .max_waiting = kMaxWaiting})
                .value()) {
    std::promise<void> begun;
    fair_->Compile(Spec("held"), kGreedy, wanted_, [&](const CompiledGrammar&) {
      begun.set_value();
      release_.get_future().wait();
    });
    begun.get_future().wait();
  }

  ~CompileQueueTest() override { LetGo(); }

  static std::string Spec(const std::string& pattern) {
    return GrammarSpec(RegexPart(pattern).value());
  }
  // Asks for a grammar; `name` is noted when the answer comes.
  void Ask(const std::string& pattern, uint64_t client, const std::string& name) {
    ++asked_;
    fair_->Compile(Spec(pattern), client, wanted_, [this, name](const CompiledGrammar& grammar) {
      std::lock_guard lock(mutex_);
      answers_.emplace_back(name, grammar.ok() ? OkStatus() : grammar.status());
      answered_.notify_all();
    });
  }
  void LetGo() {
    if (!std::exchange(released_, true)) release_.set_value();
  }
  void Release() {
    LetGo();
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(answered_.wait_for(
        lock, std::chrono::seconds(60), [&] { return answers_.size() == asked_; }));
  }

  static constexpr uint64_t kGreedy = 1;
  static constexpr uint64_t kOther = 2;
  std::shared_ptr<const bool> wanted_ = std::make_shared<const bool>(true);
  bool released_ = false;
  std::promise<void> release_;
  std::mutex mutex_;
  std::condition_variable answered_;
  size_t asked_ = 0;
  std::vector<std::pair<std::string, Status>> answers_;
  const std::unique_ptr<GrammarCompiler> fair_;  // the last member: its thread uses the others
};

// The other client waits for the grammar that is being compiled when it asks, and for no other.
TEST_F(CompileQueueTest, AGreedyClientDelaysAnotherByOneGrammar) {
  for (int i = 0; i < 20; ++i) Ask("(ab?){" + std::to_string(i + 5) + "}", kGreedy, "greedy");
  Ask("other", kOther, "other");
  Release();
  ASSERT_EQ(answers_.size(), 21u);
  EXPECT_EQ(answers_[0].first, "other");
  for (const auto& [name, status] : answers_) EXPECT_TRUE(status.ok()) << name << ": " << status;
}

TEST_F(CompileQueueTest, AClientWithTooManyWaitingGrammarsIsRefusedByTheNameOfTheLimit) {
  for (size_t i = 0; i < kMaxWaiting; ++i) Ask("a{" + std::to_string(i + 5) + "}", kGreedy, "");
  EXPECT_TRUE(answers_.empty());
  Ask("b", kGreedy, "refused");
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].second.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(answers_[0].second)),
              ::testing::HasSubstr("20 grammars of this client"));
  EXPECT_THAT(std::string(Message(answers_[0].second)),
              ::testing::HasSubstr("max_waiting_grammars"));
  Ask("a{5}", kGreedy, "waits already");
  Ask("b", kOther, "another client");
  EXPECT_EQ(answers_.size(), 1u);
  Release();
  for (size_t i = 1; i < answers_.size(); ++i) EXPECT_TRUE(answers_[i].second.ok());
  Ask("c", kGreedy, "has room again");
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(answered_.wait_for(
      lock, std::chrono::seconds(60), [&] { return answers_.size() == asked_; }));
  EXPECT_TRUE(answers_.back().second.ok());
}

// A grammar that waits far back in one client's queue is compiled in the turn of another.
TEST_F(CompileQueueTest, TheFirstTurnOfSeveralClientsCompilesAGrammar) {
  for (int i = 0; i < 5; ++i) Ask("a{" + std::to_string(i + 5) + "}", kGreedy, "greedy");
  Ask("both", kGreedy, "greedy, last");
  Ask("both", kOther, "other");
  Release();
  ASSERT_EQ(answers_.size(), 7u);
  EXPECT_EQ(answers_[0].first, "greedy, last");
  EXPECT_EQ(answers_[1].first, "other");
}

TEST_F(CompileQueueTest, AGrammarThatNobodyWantsIsNotCompiled) {
  Ask("gone", kGreedy, "gone");
  Ask("shared", kGreedy, "shared, gone");
  wanted_ = std::make_shared<const bool>(true);
  Ask("shared", kOther, "shared");
  Release();
  ASSERT_EQ(answers_.size(), 3u);
  for (const auto& [name, status] : answers_) {
    EXPECT_EQ(status.code(), name == "gone" ? StatusCode::kCancelled : StatusCode::kOk) << name;
  }
  Ask("gone", kOther, "wanted again");
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(answered_.wait_for(
      lock, std::chrono::seconds(60), [&] { return answers_.size() == asked_; }));
  EXPECT_TRUE(answers_.back().second.ok());
}

// No step waits for the first mask of a fresh output.
TEST_F(GrammarCompilerTest, TheFirstMaskIsPartOfTheGrammar) {
  const auto grammar = Compile(RegexPart("[ab]x+[cd]y"));
  const size_t bytes = grammar->bytes();
  Mask(*grammar, {});
  EXPECT_EQ(grammar->bytes(), bytes);
  Mask(*grammar, {'a', 'x'});
  EXPECT_GT(grammar->bytes(), bytes);
  EXPECT_GT(grammar->recent_call().count(), 0);
}

TEST_F(GrammarCompilerTest, KnownGrammarsAreGivenAtOnceAndTheLeastUsedForgotten) {
  const auto compiler =
      MakeGrammarCompiler(tokenizer_, {.vocabulary = vocabulary_, .cache_bytes = 1}).value();
  const std::string first = GrammarSpec(RegexPart("abc").value());
  const auto grammar = CompileNow(*compiler, first);
  const auto known_at_once = [&](const std::string& spec) {
    bool called = false;
    std::promise<void> done;
    const auto wanted = std::make_shared<const bool>(true);
    compiler->Compile(spec, 0, wanted, [&](const CompiledGrammar&) {
      called = true;
      done.set_value();
    });
    const bool at_once = called;
    done.get_future().wait();
    return at_once;
  };
  EXPECT_TRUE(known_at_once(first));
  EXPECT_EQ(CompileNow(*compiler, first), grammar);
  EXPECT_GT(grammar->bytes(), 0u);
  CompileNow(*compiler, GrammarSpec(RegexPart("abd").value()));  // takes the room of the first
  EXPECT_NE(CompileNow(*compiler, first), grammar);
}

TEST_F(GrammarCompilerTest, TheMasksOfAGrammarTakeBoundedMemory) {
  const auto grammar = Compile(RegexPart("[ab]{100}([a-y]{90}[a-z]){100}"));
  const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
  std::vector<uint32_t> mask(MaskWords(vocabulary_));
  size_t largest = 0;
  for (int i = 0; i < 9'000; ++i) {
    matcher->FillMask(mask);
    ASSERT_TRUE(matcher->Accept('a'));
    largest = std::max(largest, grammar->bytes());
  }
  EXPECT_LT(largest, 150'000u);
}

// Each of these states has a mask of its own, and there are more than a grammar keeps.
TEST_F(GrammarCompilerTest, TheMasksOfManyStatesAreForgotten) {
  constexpr int kStates = 900;
  std::string pattern;
  for (int i = 0; i < kStates; ++i) pattern += "[ -~]";
  const auto grammar = Compile(RegexPart(pattern));
  const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
  std::vector<uint32_t> mask(MaskWords(vocabulary_));
  size_t before = 0;
  int forgotten = 0;
  for (int i = 0; i < kStates; ++i) {
    matcher->FillMask(mask);
    ASSERT_TRUE(matcher->Accept('a'));
    if (grammar->bytes() < before) ++forgotten;
    before = grammar->bytes();
  }
  EXPECT_EQ(forgotten, 1);
}

TEST_F(GrammarCompilerTest, LongBoundsOfStringsCompile) {
  const auto grammar = OfSchema(R"({"type": "string", "minLength": 1, "maxLength": 200})");
  ASSERT_NE(grammar, nullptr);
  const std::vector<TokenId> text(200, 'x');
  std::vector<TokenId> tokens = {'"'};
  tokens.insert(tokens.end(), text.begin(), text.end());
  const std::vector<uint32_t> mask = Mask(*grammar, tokens);
  EXPECT_TRUE(Allows(mask, '"'));
  EXPECT_FALSE(Allows(mask, 'x'));
}

// XGrammar by itself does not count these, because the repeated rule ends with another rule.
TEST_F(GrammarCompilerTest, ManyRepetitionsOfARuleAreCounted) {
  const auto grammar = OfSchema(
      R"({"type": "array", "items": {"type": "boolean"}, "minItems": 140, "maxItems": 141})");
  const auto matcher = grammar->NewMatcher(tokenizer_.spec().eos);
  std::vector<uint32_t> mask(MaskWords(vocabulary_));
  const auto accept = [&](std::string_view text) {
    for (const char c : text) ASSERT_TRUE(matcher->Accept(static_cast<uint8_t>(c)));
  };
  for (int item = 1; item <= 141; ++item) {
    accept(item == 1 ? "[true" : ",true");
    matcher->FillMask(mask);
    EXPECT_EQ(Allows(mask, ']'), item >= 140) << item;
    EXPECT_EQ(Allows(mask, ','), item < 141) << item;
  }
}

TEST_F(GrammarCompilerTest, ControlTokensAreOutsideOfEveryGrammar) {
  const auto grammar = Compile(RegexPart(".*"));
  const std::vector<uint32_t> mask = Mask(*grammar, {'<'});
  EXPECT_TRUE(Allows(mask, 'p'));
  EXPECT_TRUE(Allows(mask, end())) << "it ends the output";
  EXPECT_FALSE(Allows(mask, end() - 1)) << "<pad>";
}

TEST_F(GrammarCompilerTest, WhatIsNotAGrammarIsRefused) {
  for (const char* spec :
       {"",
        "{}",
        "[]",
        R"({"type": "structural_tag"})",
        R"({"type": "structural_tag", "format": {"type": "magic"}})",
        R"({"type": "structural_tag", "format": {"type": "regex", "pattern": "(("}})"}) {
    EXPECT_EQ(TryCompile(*compiler_, spec).status().code(), StatusCode::kInvalidArgument) << spec;
    EXPECT_EQ(CheckGrammar(spec).code(), StatusCode::kInvalidArgument) << spec;
  }
  EXPECT_TRUE(CheckGrammar(GrammarSpec(JsonObjectPart())).ok());
}

TEST_F(GrammarCompilerTest, TheModelMustHaveLogitsForAllTokens) {
  EXPECT_EQ(MakeGrammarCompiler(tokenizer_, {.vocabulary = 10}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
