// Whole hand-offs on the soft-RoCE devices of the guest, while calls of libibverbs fail: the Nth
// post of RDMA WRITEs, and the registration of the memory.

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/verbs/verbs_transport.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/transport_conformance.h"

namespace baton {
namespace {

// The real library, in which one call fails. Posts of all queue pairs are counted together.
class FailingVerbs final {
 public:
  FailingVerbs() : library_(**VerbsLibrary::Load()) {
    posts_until_failure_ = 0;
    registrations_fail_ = false;
    real_open_ = library_.open_device;
    real_register_ = library_.reg_mr_iova2;
    library_.open_device = [](ibv_device* device) {
      ibv_context* const context = real_open_(device);
      real_post_ = context->ops.post_send;
      context->ops.post_send = Post;
      return context;
    };
    library_.reg_mr_iova2 = [](ibv_pd* domain,
                               void* address,
                               size_t bytes,
                               uint64_t offset,
                               unsigned access) -> ibv_mr* {
      if (!registrations_fail_) return real_register_(domain, address, bytes, offset, access);
      errno = ENOMEM;
      return nullptr;
    };
  }
  // The Nth post from now on fails, and no other. 0: none.
  static void FailPost(int n) { posts_until_failure_ = n; }
  static void FailRegistrations() { registrations_fail_ = true; }
  // Whether the post that was to fail has been made.
  static bool has_failed() { return posts_until_failure_ <= 0; }
  const VerbsLibrary& library() const { return library_; }

 private:
  // Posts all requests but the last one, which fails: some of the list is on its way, as on a
  // device whose queue is full.
  static int Post(ibv_qp* queue_pair, ibv_send_wr* first, ibv_send_wr** bad) {
    if (--posts_until_failure_ != 0) return real_post_(queue_pair, first, bad);
    ibv_send_wr* before = nullptr;
    ibv_send_wr* last = first;
    for (; last->next != nullptr; last = last->next) before = last;
    if (before != nullptr) {
      before->next = nullptr;
      (void)real_post_(queue_pair, first, bad);
    }
    *bad = last;
    return ENOMEM;
  }

  static inline std::atomic<int> posts_until_failure_ = 0;
  static inline bool registrations_fail_ = false;
  static inline decltype(VerbsLibrary::open_device) real_open_ = nullptr;
  static inline decltype(VerbsLibrary::reg_mr_iova2) real_register_ = nullptr;
  static inline decltype(ibv_context_ops::post_send) real_post_ = nullptr;
  VerbsLibrary library_;
};

StatusOr<std::unique_ptr<Transport>> Make(const FailingVerbs& verbs) {
  TransportOptions options;
  options.listen_address = "127.0.0.1:0";
  options.fence_timeout = std::chrono::milliseconds(500);
  options.verbs.devices = {"rxe0"};
  return VerbsTransport::Create(&verbs.library(), options, nullptr, {}, {});
}

class RdmaCallFaultTest : public testing::TestWithParam<int> {
 protected:
  FailingVerbs verbs_;
};

TEST_P(RdmaCallFaultTest, AHandoffWhosePostFailsEndsAndTheNextOneSucceeds) {
  HandoffPair::Options options;
  options.transport = "verbs";
  options.make_transport = [this](std::string_view) { return Make(verbs_); };
  options.op_bytes = 1;  // one block a write
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 12);
  FailingVerbs::FailPost(GetParam());
  pair.Send(SessionId(1), source, 4, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_TRUE(FailingVerbs::has_failed()) << "the hand-off has fewer posts";
  if (pair.received().Get(SessionId(1)).committed) {
    // The first post of all ends the sender's connecting. If that fails before the hand-off has a
    // write, the hand-off takes the next channel.
    EXPECT_EQ(GetParam(), 1);
    EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
  } else {
    // The post that failed was the sender's (a write or a frame), or the receiver's (a frame).
    EXPECT_THAT(std::string(Message(pair.sent().Get(SessionId(1)).status)),
                testing::AnyOf(testing::HasSubstr("takes no send request: Cannot allocate memory"),
                               testing::HasSubstr("closed by the peer")));
  }
  pair.Send(SessionId(2), source, 4, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(2)));
  EXPECT_TRUE(pair.received().Get(SessionId(2)).committed)
      << pair.received().Get(SessionId(2)).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(2))));
  EXPECT_EQ(pair.sender().Stats().quarantined, 0u);
  EXPECT_EQ(pair.receiver().Stats().quarantined, 0u);
}

INSTANTIATE_TEST_SUITE_P(Posts, RdmaCallFaultTest, testing::Values(1, 2, 3, 7, 12));

TEST(RdmaRegistrationTest, AFailedRegistrationIsAnErrorAndLeaksNothing) {
  const FailingVerbs verbs;
  FailingVerbs::FailRegistrations();
  for (int i = 0; i < 20; ++i) {
    const auto transport = Make(verbs);
    ASSERT_TRUE(transport.ok()) << transport.status();
    TestMemory memory(HostDevice(), 4096);
    EXPECT_THAT(std::string(Message((*transport)->Register(memory.buffer()).status())),
                testing::HasSubstr("cannot register 4096 bytes: Cannot allocate memory (raise the "
                                   "limit of locked memory: ulimit -l)"));
  }
}

}  // namespace
}  // namespace baton
