#include "common/engine/sequence_masks.h"

#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_grammar.h"

namespace baton {
namespace {

constexpr int32_t kVocabulary = 1000;

Time Soon() {
  return SteadyClock().Now() + std::chrono::seconds(3);
}

// A constrained sequence whose prompt is computed.
class Constrained final {
 public:
  explicit Constrained(std::shared_ptr<const Grammar> grammar) : active_(BlockHasher(16, {})) {
    active_.grammar = std::move(grammar);
    active_.request.prompt_length = 1;
    sequence_.request = &active_;
    sequence_.tokens = {3};
  }

  Sequence& sequence() { return sequence_; }
  bool IsReady(Time limit) const { return sequence_.mask->After(0).WaitUntil(limit); }

 private:
  ActiveRequest active_;
  Sequence sequence_;
};

class SequenceMasksTest : public ::testing::Test {
 protected:
  SequenceMasksTest() : slow_(std::make_shared<FakeGrammar>(9, &gate_)) {
    slow_->CallsTake(2 * SequenceMasks::kLongCall);
    gate_.Hold();
  }
  ~SequenceMasksTest() override { gate_.Release(); }

  MaskGate gate_;
  const std::shared_ptr<FakeGrammar> slow_;
  const std::shared_ptr<FakeGrammar> fast_ = std::make_shared<FakeGrammar>(9);
  SequenceMasks masks_{kVocabulary, 1};
};

TEST_F(SequenceMasksTest, MasksOfSlowGrammarsDelayNoOthers) {
  Constrained slow(slow_);
  Constrained fast(fast_);
  masks_.Begin(slow.sequence());
  masks_.Begin(fast.sequence());
  EXPECT_TRUE(fast.IsReady(Soon()));
  EXPECT_FALSE(slow.IsReady(SteadyClock().Now()));
  gate_.Release();
  EXPECT_TRUE(slow.IsReady(Soon()));
}

TEST_F(SequenceMasksTest, FirstMasksOfSlowGrammarsDelayNoOthers) {
  std::promise<std::shared_ptr<SequenceMask>> slow;
  masks_.First(slow_, {}, {}, [&](auto mask) { slow.set_value(std::move(mask)); });
  Constrained fast(fast_);
  masks_.Begin(fast.sequence());
  EXPECT_TRUE(fast.IsReady(Soon()));
  gate_.Release();
  EXPECT_TRUE(slow.get_future().get()->After(0).WaitUntil(SteadyClock().Now()));
}

// The time of a long output is not known to the grammar.
TEST_F(SequenceMasksTest, FirstMasksOfResumedOutputsDelayNoOthers) {
  slow_->CallsTake({});
  std::promise<std::shared_ptr<SequenceMask>> resumed;
  masks_.First(slow_, {}, {5}, [&](auto mask) { resumed.set_value(std::move(mask)); });
  Constrained fast(fast_);
  masks_.Begin(fast.sequence());
  EXPECT_TRUE(fast.IsReady(Soon()));
  gate_.Release();
  EXPECT_TRUE(resumed.get_future().get()->After(1).WaitUntil(SteadyClock().Now()));
}

}  // namespace
}  // namespace baton
