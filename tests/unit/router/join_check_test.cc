#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "router/core/router_core.h"
#include "router/workers/refused_joins.h"

// Which workers may join a cluster.
namespace baton::router {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Time kStart{std::chrono::hours(1)};

class JoinCheckTest : public ::testing::Test {
 protected:
  static OwnModel SmolLm() {
    return {"smollm2", 49152, Hash128{1, 1}, Hash128{2, 2}, Hash128{3, 3}};
  }
  // A worker that has the model SmolLm().
  static WorkerInfo Right(const std::string& id) {
    WorkerInfo info;
    info.id = WorkerId(id);
    info.boot = BootId(id.size() + 100);
    info.can_decode = true;
    info.model = "its-name";
    info.vocabulary = 49152;
    info.shape = {1, 1};
    info.tokenizer = {2, 2};
    info.fingerprint = {3, 3};
    info.kv_layout = "f16";
    info.block_tokens = 16;
    info.blocks = 100;
    info.context_length = 8192;
    info.address = "ipv4:10.0.0.7:4000";
    return info;
  }
  RouterCore& Core(OwnModel model = SmolLm(), uint64_t secret = 0) {
    CoreOptions options;
    options.model = std::move(model);
    options.hash_secret = secret;
    core_.emplace(options);
    return *core_;
  }
  // Returns the reason why the join is refused; "" when it is accepted.
  std::string Join(const WorkerInfo& info, Time now = kStart) {
    const StatusOr<WorkerSlot> slot = core_->Join(info, now);
    if (slot.ok()) return "";
    EXPECT_EQ(slot.status().code(), StatusCode::kFailedPrecondition) << slot.status();
    return std::string(Message(slot.status()));
  }

  std::optional<RouterCore> core_;
};

TEST_F(JoinCheckTest, TheRoutersModelDecidesNotTheFirstToJoin) {
  Core();
  WorkerInfo tiny = Right("tiny");
  tiny.model = "tiny-llama";
  tiny.vocabulary = 512;
  tiny.shape = {9, 9};
  tiny.tokenizer = {9, 9};
  tiny.fingerprint = {9, 9};
  EXPECT_THAT(Join(tiny),
              AllOf(HasSubstr("worker tiny has another model"),
                    HasSubstr("tiny-llama (vocabulary 512"),
                    HasSubstr("this router's is smollm2 (vocabulary 49152")));
  EXPECT_FALSE(core_->identity().has_value());
  EXPECT_EQ(Join(Right("a")), "");
  EXPECT_EQ(core_->identity()->model, "smollm2");
  EXPECT_THAT(Join(tiny), HasSubstr("another model"));
  EXPECT_EQ(Join(Right("bb")), "");
}

TEST_F(JoinCheckTest, AnotherTokenizerAndOtherWeightsAreOtherModels) {
  Core();
  WorkerInfo other = Right("w");
  other.tokenizer = {8, 8};
  EXPECT_THAT(Join(other), HasSubstr("another tokenizer"));
  other = Right("w");
  other.fingerprint = {8, 8};
  EXPECT_THAT(Join(other), HasSubstr("other weights"));
  other = Right("w");
  other.tokenizer = {};  // the worker has no tokenizer files and needs none
  EXPECT_EQ(Join(other), "");
}

TEST_F(JoinCheckTest, ARouterWithoutWeightsComparesTheRest) {
  OwnModel model = SmolLm();
  model.fingerprint = {};
  Core(model);
  WorkerInfo other = Right("w");
  other.shape = {8, 8};
  EXPECT_THAT(Join(other), HasSubstr("another model"));
  EXPECT_EQ(Join(Right("a")), "");
  other = Right("w");
  other.fingerprint = {8, 8};  // the workers of a cluster must still have the same weights
  EXPECT_THAT(Join(other), HasSubstr("the workers of this cluster have"));
}

TEST_F(JoinCheckTest, AnotherSecretIsRefusedAndNeitherIsTold) {
  Core(SmolLm(), 4711);
  WorkerInfo info = Right("w");
  EXPECT_THAT(Join(info), HasSubstr("another hash_secret"));
  info.secret_probe = SecretProbe(815, info.boot);
  EXPECT_THAT(Join(info), AllOf(HasSubstr("another hash_secret"), Not(HasSubstr("4711"))));
  info.secret_probe = SecretProbe(4711, info.boot);
  EXPECT_EQ(Join(info), "");
  Core(SmolLm(), 0);
  EXPECT_THAT(Join(info), HasSubstr("another hash_secret"));
}

TEST_F(JoinCheckTest, WorkersFitTogether) {
  Core();
  EXPECT_EQ(Join(Right("a")), "");
  using Change = void (*)(WorkerInfo&);
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](WorkerInfo& info) { info.kv_layout = "bf16"; }, "KV layout [bf16]"},
      {[](WorkerInfo& info) { info.block_tokens = 32; }, "32 tokens a block"},
      {[](WorkerInfo& info) { info.context_length = 1000; }, "context length 1000"}};
  for (const auto& [change, words] : changes) {
    WorkerInfo other = Right("bb");
    change(other);
    EXPECT_THAT(Join(other), AllOf(HasSubstr(words), HasSubstr("KV layout [f16], 16 tokens")));
  }
  // The only worker of a cluster may restart with other properties.
  WorkerInfo again = Right("a");
  again.boot = BootId(7);
  again.kv_layout = "bf16";
  EXPECT_EQ(Join(again, kStart + std::chrono::seconds(2)), "");
  EXPECT_EQ(core_->identity()->kv_layout, "bf16");
}

// The fingerprint samples the weights. Weights that differ elsewhere must not meet in a cluster.
TEST_F(JoinCheckTest, WeightsThatDifferAnywhereAreRefused) {
  Core();
  WorkerInfo first = Right("a");
  first.weights = {5, 6};
  EXPECT_EQ(Join(first), "");
  WorkerInfo other = Right("bb");
  other.weights = {5, 7};
  EXPECT_THAT(Join(other),
              AllOf(HasSubstr("00000000000000050000000000000007"),
                    HasSubstr("00000000000000050000000000000006"),
                    HasSubstr("give all workers the same weight files")));
  other.weights = {5, 6};
  EXPECT_EQ(Join(other), "");
  other = Right("ccc");  // a worker that does not tell
  EXPECT_EQ(Join(other), "");
}

TEST_F(JoinCheckTest, ANameThatIsTakenIsRefusedSayingByWhom) {
  Core();
  EXPECT_EQ(Join(Right("a")), "");
  WorkerInfo twin = Right("a");
  twin.boot = BootId(7);
  const StatusOr<WorkerSlot> slot = core_->Join(twin, kStart);
  EXPECT_EQ(slot.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(Message(slot.status())),
              AllOf(HasSubstr("a worker with worker_id a is"), HasSubstr("10.0.0.7:4000")));
}

TEST_F(JoinCheckTest, WhoIsLetInIsForgottenAsRefused) {
  Core();
  core_->Refuse(WorkerId("a"), "ipv4:10.0.0.7:3999", InvalidArgument("x"), kStart);
  core_->Refuse(WorkerId("a"), "ipv4:10.0.0.8:3999", InvalidArgument("x"), kStart);
  EXPECT_EQ(Join(Right("a")), "");
  ASSERT_EQ(core_->refused_joins().entries().size(), 1u);
  EXPECT_EQ(core_->refused_joins().entries()[0].address, "ipv4:10.0.0.8:3999");
}

TEST_F(JoinCheckTest, ADrainSaysWhetherTheProcessStays) {
  Core();
  EXPECT_EQ(Join(Right("a")), "");
  EXPECT_TRUE(core_->Drain(WorkerId("a"), true, kStart).ok());
  EXPECT_TRUE(core_->Drain(WorkerId("a"), false, kStart).ok());
  CoreActions actions;
  core_->TakeActions(actions);
  std::vector<bool> drains;
  for (const auto& [slot, command] : actions.commands) {
    if (const auto* drain = std::get_if<DrainWorkerCommand>(&command))
      drains.push_back(drain->keep);
  }
  EXPECT_EQ(drains, (std::vector<bool>{true, false}));
}

TEST(RefusedJoins, CountsAttemptsByNameAndHostTheLatestFirst) {
  RefusedJoins joins;
  EXPECT_TRUE(joins.Add(WorkerId("a"), "ipv4:1.1.1.1:10", InvalidArgument("x"), kStart));
  EXPECT_TRUE(joins.Add(WorkerId("b"), "ipv4:1.1.1.1:11", InvalidArgument("x"), kStart));
  EXPECT_TRUE(joins.Add(WorkerId("a"), "ipv4:1.1.1.1:12", InvalidArgument("x"), kStart));
  EXPECT_FALSE(joins.Add(WorkerId("a"), "ipv4:1.1.1.1:13", InvalidArgument("x"), kStart));
  EXPECT_TRUE(joins.Add(WorkerId("a"), "ipv4:1.1.1.1:14", InvalidArgument("y"), kStart))
      << "a new reason";
  ASSERT_EQ(joins.entries().size(), 2u);
  EXPECT_EQ(joins.entries()[0].worker, WorkerId("a"));
  EXPECT_EQ(joins.entries()[0].attempts, 4);
  EXPECT_EQ(joins.entries()[0].address, "ipv4:1.1.1.1:14");
  EXPECT_EQ(joins.entries()[0].reason, "y");
  EXPECT_EQ(joins.entries()[1].worker, WorkerId("b"));
}

TEST(RefusedJoins, AreBoundedInNumberAndInText) {
  RefusedJoins joins;
  for (int i = 0; i < 1000; ++i) {
    joins.Add(WorkerId(std::string(10'000, 'x') + std::to_string(i)),
              fmt::format("ipv4:1.1.{}.{}:1", i / 250, i % 250),
              Status(StatusCode::kInvalidArgument, std::string(10'000, 'y')),
              kStart);
  }
  EXPECT_EQ(joins.entries().size(), RefusedJoins::kMaxEntries);
  EXPECT_LE(joins.entries()[0].worker.value().size(), 256u);
  EXPECT_LE(joins.entries()[0].reason.size(), 1024u);
  EXPECT_EQ(joins.entries()[0].address, "ipv4:1.1.3.249:1");
}

}  // namespace
}  // namespace baton::router
