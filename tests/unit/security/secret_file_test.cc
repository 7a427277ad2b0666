#include "common/security/secret_file.h"

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/security/cluster_proofs.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

const std::string kOld = "the-secret-of-this-test-cluster-1";
const std::string kNew = "the-secret-of-this-test-cluster-2";

ClusterSecret Secret(const std::string& text) {
  return ClusterSecret::Parse(text).value();
}

// Whether a handshake between a dialler and a listener with these secrets succeeds.
bool Meet(const PeerProofs& dials, const PeerProofs& listens) {
  const auto dialler = dials.Make(PeerSide::kDialler, "test");
  const auto listener = listens.Make(PeerSide::kListener, "test");
  std::string message = dialler->Begin();
  for (PeerProof* next : {listener.get(), dialler.get(), listener.get(), dialler.get()}) {
    StatusOr<std::string> answer = next->OnMessage(message);
    if (!answer.ok()) return false;
    message = *std::move(answer);
  }
  return dialler->done() && listener->done();
}

TEST(SecretOverlap, TheEarlierSecretIsAcceptedForTheStatedTime) {
  const Time start{std::chrono::hours(1)};
  SecretOverlap secret(Secret(kOld), seconds(10));
  secret.Set(Secret(kOld), start);
  EXPECT_THAT(secret.At(start).accepted(), ElementsAre(kOld));
  secret.Set(Secret(kNew), start);
  // Others may not have read the new secret yet.
  EXPECT_THAT(secret.At(start + seconds(4)).accepted(), ElementsAre(kOld, kNew));
  EXPECT_THAT(secret.At(start + seconds(5)).accepted(), ElementsAre(kNew, kOld));
  EXPECT_THAT(secret.At(start + seconds(9)).accepted(), ElementsAre(kNew, kOld));
  EXPECT_THAT(secret.At(start + seconds(10)).accepted(), ElementsAre(kNew));
}

TEST(SecretOverlap, WithoutOverlapTheEarlierSecretEndsAtOnce) {
  SecretOverlap secret(Secret(kOld), Duration::zero());
  secret.Set(Secret(kNew), Time{seconds(1)});
  EXPECT_THAT(secret.At(Time{seconds(1)}).accepted(), ElementsAre(kNew));
}

class SecretFileTest : public testing::Test {
 protected:
  std::unique_ptr<ClusterProofs> Open(const std::string& file, Duration overlap) {
    const std::string path = folder_.path() + "/" + file;
    return std::make_unique<ClusterProofs>(
        SecretFile::Open(path, {overlap, kLookEvery}, *refusals_).value(), refusals_);
  }
  // Waits until both ends accept each other, or do not.
  static bool Await(const PeerProofs& dials, const PeerProofs& listens, bool meet) {
    const Time limit = SteadyClock().Now() + seconds(10);
    while (Meet(dials, listens) != meet && SteadyClock().Now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return Meet(dials, listens) == meet;
  }

  bool HasFailedReloads(int count) {
    return metrics_.Serialize().find(
               fmt::format("baton_security_failed_reloads_total {}", count)) != std::string::npos;
  }

  static constexpr Duration kLookEvery = std::chrono::milliseconds(20);
  TemporaryFolder folder_;
  MetricsRegistry metrics_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>(metrics_);
  const ClusterProofs only_old_{Secret(kOld), refusals_};
  const ClusterProofs only_new_{Secret(kNew), refusals_};
};

TEST_F(SecretFileTest, AReplacedSecretIsReadWithoutARestart) {
  folder_.Write("secret", kOld);
  const auto proofs = Open("secret", seconds(3600));
  EXPECT_TRUE(Meet(only_old_, *proofs));
  EXPECT_FALSE(Meet(only_new_, *proofs));
  folder_.Write("secret", kNew);
  EXPECT_TRUE(Await(only_new_, *proofs, true));
  EXPECT_TRUE(Meet(only_old_, *proofs));
  EXPECT_TRUE(Meet(*proofs, only_old_)) << "others may not have read the new secret yet";
}

TEST_F(SecretFileTest, TheEarlierSecretEnds) {
  folder_.Write("secret", kOld);
  const auto proofs = Open("secret", std::chrono::milliseconds(500));
  folder_.Write("secret", kNew);
  EXPECT_TRUE(Await(only_new_, *proofs, true));
  EXPECT_TRUE(Await(only_old_, *proofs, false));
  EXPECT_TRUE(Meet(*proofs, only_new_));
}

TEST_F(SecretFileTest, AnUnusableFileKeepsTheSecret) {
  folder_.Write("secret", kOld);
  const auto proofs = Open("secret", Duration::zero());
  folder_.Write("secret", "short");
  const Time limit = SteadyClock().Now() + seconds(10);
  while (HasFailedReloads(0) && SteadyClock().Now() < limit) std::this_thread::yield();
  std::this_thread::sleep_for(5 * kLookEvery);
  EXPECT_TRUE(Meet(only_old_, *proofs));
  EXPECT_TRUE(HasFailedReloads(1)) << "an unusable file is read once";
}

}  // namespace
}  // namespace baton
