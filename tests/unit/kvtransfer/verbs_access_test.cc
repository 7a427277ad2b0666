#include "kvtransfer/verbs/verbs_access.h"

#include <arpa/inet.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/verbs/rail_choice.h"
#include "kvtransfer/verbs/write_mark.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/fakes/host_buffer.h"
#include "tests/unit/kvtransfer/fake_verbs.h"

// When the bytes of a peer count as landed, and that a GPU's memory is flushed before they do.
namespace baton {
namespace {

class VerbsAccessTest : public testing::Test {
 protected:
  VerbsAccessTest() {
    verbs_.devices = {
        {"a",
         true,
         IBV_LINK_LAYER_ETHERNET,
         {FakeVerbs::GidEntry(IBV_GID_TYPE_ROCE_V2,
                              {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1})}}};
    rails_ = *OpenRails(verbs_.library(), {}, {}, {});
  }
  std::unique_ptr<RemoteAccess> Open(const Buffer& memory, Dma* dma) {
    const auto keys = [](const Buffer&) { return std::vector<uint32_t>{7}; };
    auto access = *VerbsAccess::Create("a peer", rails_, keys, dma, *socket_);
    Handshake greeting;
    greeting.rails = {{.port = rails_[0]->port(), .rkey = 0, .index = 0, .queue_pairs = {{9, 1}}}};
    const auto opened = access->Open(memory, EncodeHandshake(greeting));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return access;
  }
  // The last write of the copy with this number lands.
  void Land(uint32_t number) {
    ibv_wc completion{};
    completion.status = IBV_WC_SUCCESS;
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.qp_num = 17;
    completion.imm_data = htonl(MarkOf(0, number));
    verbs_.completions.push_back(completion);
  }

  FakeVerbs verbs_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<VerbsSocket> socket_ = UnconnectedVerbsSocket();
  FakeGpu gpu_;
};

TEST_F(VerbsAccessTest, ACopyCountsWhenItsMarkHasArrived) {
  const HostBuffer memory(4096);
  const auto access = Open(memory, nullptr);
  EXPECT_FALSE(access->HasLanded(MarkOf(0, 2)));
  Land(1);
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 1)));
  EXPECT_FALSE(access->HasLanded(MarkOf(0, 2)));
  Land(3);
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 2)));
  EXPECT_FALSE(access->HasLanded(MarkOf(1, 1))) << "there is no second queue pair";
}

TEST_F(VerbsAccessTest, TheMemoryOfAGpuIsFlushedBeforeItCounts) {
  const auto memory = *gpu_.Allocate(4096, Sharing::kShared);
  const auto access = Open(*memory, &gpu_);
  EXPECT_FALSE(access->HasLanded(MarkOf(0, 1)));
  EXPECT_EQ(gpu_.flushes(), 0);
  Land(1);
  Land(2);
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 1)));
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 2)));
  EXPECT_EQ(gpu_.flushes(), 1) << "one flush serves all bytes that landed before it";
  Land(3);
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 3)));
  EXPECT_EQ(gpu_.flushes(), 2);
}

TEST_F(VerbsAccessTest, NothingCountsWhileTheGpuCannotBeFlushed) {
  const auto memory = *gpu_.Allocate(4096, Sharing::kShared);
  const auto access = Open(*memory, &gpu_);
  gpu_.SetFlush(MakeStatus(StatusCode::kUnavailable, "lost"));
  Land(1);
  EXPECT_FALSE(access->HasLanded(MarkOf(0, 1)));
  gpu_.SetFlush(OkStatus());
  EXPECT_TRUE(access->HasLanded(MarkOf(0, 1)));
}

}  // namespace
}  // namespace baton
