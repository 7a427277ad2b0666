#include "common/engine/sequence_mask.h"

#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_grammar.h"

// The masks after an output and after its drafts.
namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int32_t kVocabulary = 3;
constexpr auto kTwoOfThree = FakeGrammar::Kind::kTwoOfThree;

std::vector<bool> Bits(std::span<const uint32_t> words) {
  std::vector<bool> bits;
  for (int32_t token = 0; token < kVocabulary; ++token)
    bits.push_back((words[0] >> token & 1) != 0);
  return bits;
}

std::vector<bool> Computed(const SequenceMask& mask, size_t output) {
  EXPECT_TRUE(mask.After(output).WaitUntil(Time()));
  return Bits(mask.After(output).allowed());
}

// The mask after `output` of a matcher that has seen nothing else.
std::vector<bool> Expected(const Grammar& grammar, const Tokens& output) {
  const auto matcher = grammar.NewMatcher({});
  for (const TokenId token : output) EXPECT_TRUE(matcher->Accept(token));
  std::vector<uint32_t> words(1);
  matcher->FillMask(words);
  return Bits(words);
}

std::shared_ptr<FakeGrammar> Grammar3() {
  return std::make_shared<FakeGrammar>(0, nullptr, std::nullopt, kTwoOfThree);
}

TEST(SequenceMaskTest, EachPlaceHasTheMaskOfItsOwnState) {
  const auto grammar = Grammar3();
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    SequenceMask mask(kVocabulary, grammar, {});
    Tokens output;
    const auto next = [&](const Tokens& before) {
      while (true) {
        const auto token = static_cast<TokenId>(random() % kVocabulary);
        if (Expected(*grammar, before)[static_cast<size_t>(token)]) return token;
      }
    };
    for (int step = 0; step < 30; ++step) {
      Tokens drafts;
      Tokens all = output;
      for (uint64_t count = random() % 5; count > 0; --count) {
        all.push_back(static_cast<TokenId>(random() % kVocabulary));
        drafts.push_back(all.back());
      }
      // What the grammar forbids is cut, with what is behind it.
      const size_t allowed = mask.Allowed(output, drafts);
      if (step > 0) {
        Tokens right = output;
        size_t count = 0;
        for (; count < drafts.size(); ++count) {
          if (!Expected(*grammar, right)[static_cast<size_t>(drafts[count])]) break;
          right.push_back(drafts[count]);
        }
        ASSERT_EQ(allowed, count);
      }
      drafts.resize(allowed);
      if (mask.Prepare(output, drafts)) mask.Compute();
      all = output;
      for (size_t place = 0; place <= drafts.size(); ++place) {
        ASSERT_EQ(Computed(mask, output.size() + place), Expected(*grammar, all));
        if (place < drafts.size()) all.push_back(drafts[place]);
      }
      // The output goes on with some of the drafts and one more token.
      for (uint64_t taken = random() % (drafts.size() + 1), i = 0; i < taken; ++i) {
        output.push_back(drafts[i]);
      }
      output.push_back(next(output));
    }
  }
}

// The row whose mask was late is computed again as it is.
TEST(SequenceMaskTest, MasksThatHaveBegunAreNotBegunAgain) {
  SequenceMask mask(kVocabulary, Grammar3(), {});
  EXPECT_TRUE(mask.Prepare({}, Tokens{1, 1}));
  EXPECT_FALSE(mask.Prepare({}, {}));
  EXPECT_FALSE(mask.Prepare(Tokens{1}, {}));
  EXPECT_FALSE(mask.Prepare(Tokens{1, 1}, {}));
  EXPECT_FALSE(mask.After(2).WaitUntil(Time()));
  mask.Compute();
  EXPECT_EQ(Computed(mask, 2), Expected(*Grammar3(), {1, 1}));
  EXPECT_TRUE(mask.Prepare(Tokens{1, 1, 2}, {}));
}

TEST(SequenceMaskTest, NoDraftsWhileMasksAreComputed) {
  SequenceMask mask(kVocabulary, Grammar3(), {});
  EXPECT_EQ(mask.Allowed({}, Tokens{1}), 0u) << "no mask has begun";
  EXPECT_TRUE(mask.Prepare({}, {}));
  EXPECT_EQ(mask.Allowed(Tokens{1}, Tokens{1}), 0u);
  mask.Compute();
  EXPECT_EQ(mask.Allowed(Tokens{1}, Tokens{1, 1, 2}), 1u);
}

// A draft that ends the output saves no step.
TEST(SequenceMaskTest, AStopTokenIsNoDraft) {
  SequenceMask mask(kVocabulary, Grammar3(), Tokens{2});
  EXPECT_TRUE(mask.Prepare({}, {}));
  mask.Compute();
  EXPECT_EQ(mask.Allowed(Tokens{1}, Tokens{1, 2, 2}), 1u);
}

TEST(SequenceMaskTest, WhatIsForcedFollowsTheOutput) {
  SequenceMask mask(kVocabulary, Grammar3(), {});
  EXPECT_EQ(mask.Forced({}, 2), Tokens()) << "no mask has begun";
  EXPECT_TRUE(mask.Prepare({}, Tokens{1, 1}));
  EXPECT_EQ(mask.Forced({}, 2), Tokens()) << "a mask is being computed";
  mask.Compute();
  EXPECT_EQ(mask.Forced(Tokens{1, 0}, 2), Tokens()) << "the sum is 1";
  EXPECT_EQ(mask.Forced(Tokens{1, 1, 2}, 2), Tokens({0, 0})) << "the sum is 4";
}

// The masks of drafts that were not chosen are of no use. The next mask does not wait for them, and
// no thread but the first one computes it.
TEST(SequenceMaskTest, ASecondJobStopsTheFirstOne) {
  MaskGate gate;
  const auto grammar = std::make_shared<FakeGrammar>(0, &gate, std::nullopt, kTwoOfThree);
  SequenceMask mask(kVocabulary, grammar, {});
  EXPECT_TRUE(mask.Prepare({}, Tokens{1, 1, 0, 0}));
  gate.Hold();
  std::jthread thread([&] { mask.Compute(); });
  EXPECT_FALSE(mask.After(0).WaitUntil(SteadyClock().Now() + std::chrono::milliseconds(50)));
  EXPECT_FALSE(mask.Prepare(Tokens{2}, {})) << "the thread computes it behind the first mask";
  gate.Release();
  EXPECT_TRUE(mask.After(1).WaitUntil(SteadyClock().Now() + std::chrono::seconds(5)));
  EXPECT_EQ(Computed(mask, 1), Expected(*grammar, {2}));
  thread.join();
  EXPECT_EQ(gate.passed(), 3) << "the first mask, the second one, and the expected one";
}

// The matcher has lost its state at a draft, but the output goes on.
TEST(SequenceMaskTest, AFailureAtADraftThatIsNotChosenIsNone) {
  const Status failure = InvalidArgument("the grammar is too ambiguous");
  for (const Status& why : {failure, OkStatus()}) {
    const auto grammar = std::make_shared<FakeGrammar>(0, nullptr, OutputEnd{3, why}, kTwoOfThree);
    SequenceMask mask(kVocabulary, grammar, {});
    EXPECT_TRUE(mask.Prepare(Tokens{1}, Tokens{1, 0}));
    mask.Compute();
    EXPECT_EQ(Computed(mask, 2), Expected(*grammar, {1, 1}));
    EXPECT_EQ(mask.FailureAfter(2), OkStatus());
    EXPECT_EQ(Computed(mask, 3), std::vector<bool>(3));
    EXPECT_EQ(mask.FailureAfter(3).code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(mask.Prepare(Tokens{1, 0}, {}));
    mask.Compute();
    EXPECT_EQ(Computed(mask, 2), Expected(*grammar, {1, 0}));
    EXPECT_EQ(mask.FailureAfter(2), OkStatus());
  }
}

}  // namespace
}  // namespace baton
