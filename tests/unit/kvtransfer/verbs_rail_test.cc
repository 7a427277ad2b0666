#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/device.h"
#include "kvtransfer/verbs/rail_choice.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/fake_verbs.h"

// Which device, port and GID a rail takes, and what it says when there is none.
namespace baton {
namespace {

using ::testing::HasSubstr;

const std::vector<uint8_t> kV4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
const std::vector<uint8_t> kGlobal = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
const std::vector<uint8_t> kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

class RailTest : public testing::Test {
 protected:
  StatusOr<std::vector<std::unique_ptr<Rail>>> Open() {
    return OpenRails(verbs_.library(), options_, near_, [this](auto line) { log_ += line; });
  }
  std::string Error() {
    const auto rails = Open();
    EXPECT_FALSE(rails.ok());
    return std::string(Message(rails.status()));
  }
  static ibv_gid_entry V2(const std::vector<uint8_t>& gid) {
    return FakeVerbs::GidEntry(IBV_GID_TYPE_ROCE_V2, gid);
  }
  static ibv_gid_entry V1(const std::vector<uint8_t>& gid) {
    return FakeVerbs::GidEntry(IBV_GID_TYPE_ROCE_V1, gid);
  }

  FakeVerbs verbs_;
  VerbsOptions options_;
  NearDevice near_;
  std::string log_;
};

TEST_F(RailTest, WithoutADeviceTheErrorStatesWhatWasLookedFor) {
  EXPECT_EQ(Error(), "there is no usable RDMA device; ibv_devinfo shows these: none");
  options_.devices = {"mlx5_7"};
  EXPECT_EQ(Error(), "there is no RDMA device mlx5_7; ibv_devinfo shows these: none");
}

TEST_F(RailTest, TheFirstActiveDeviceIsTaken) {
  verbs_.devices = {{"down0", false, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}},
                    {"bare0", true, IBV_LINK_LAYER_ETHERNET, {V1(kV4)}},
                    {"good0", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}},
                    {"good1", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}}};
  const auto rails = Open();
  ASSERT_TRUE(rails.ok()) << rails.status();
  ASSERT_EQ(rails->size(), 1u);
  EXPECT_EQ(log_,
            "verbs: rail 0 is good0 port 1, GID 0 (::ffff:10.0.0.1), RoCE v2 over IPv4: the first "
            "device whose port is active");
  verbs_.devices.resize(2);
  EXPECT_THAT(Error(), HasSubstr("port 1 of RDMA device down0 is not active"));
  EXPECT_THAT(Error(), HasSubstr("port 1 of RDMA device bare0 has no GID for RoCE v2"));
}

TEST_F(RailTest, NamedDevicesAreTakenInTheirOrder) {
  verbs_.devices = {{"a", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}},
                    {"b", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}}};
  options_.devices = {"b:1", "a"};
  const auto rails = Open();
  ASSERT_TRUE(rails.ok()) << rails.status();
  ASSERT_EQ(rails->size(), 2u);
  EXPECT_THAT((*rails)[0]->ToString(), HasSubstr("b port 1"));
  EXPECT_THAT((*rails)[1]->ToString(), HasSubstr("a port 1"));
  options_.devices = {"a:2"};
  EXPECT_EQ(Error(), "RDMA device a has no port 2; it has 1");
  for (const char* name : {"a:", "a:x", "a:0", "a:256", "a:1x"}) {
    options_.devices = {name};
    EXPECT_THAT(Error(), HasSubstr("is not of the form")) << name;
  }
  options_.devices.assign(9, "a");
  EXPECT_EQ(Error(), "9 RDMA devices are named; at most 8 are allowed");
}

TEST_F(RailTest, TheBestGidOfRoceV2IsTaken) {
  const auto chosen = [&](std::vector<ibv_gid_entry> gids) {
    verbs_.devices = {{"a", true, IBV_LINK_LAYER_ETHERNET, std::move(gids)}};
    return int{(*Open())[0]->gid_index()};
  };
  EXPECT_EQ(chosen({V1(kV4), V2(kLinkLocal), V2(kGlobal), V2(kV4), V2(kV4)}), 3);
  EXPECT_EQ(chosen({V2(kLinkLocal), V2(kGlobal), V1(kV4)}), 1);
  EXPECT_EQ(chosen({ibv_gid_entry{}, V2(kLinkLocal)}), 1);
  options_.gid_index = 0;
  EXPECT_EQ(chosen({V2(kLinkLocal), V2(kV4)}), 0);
  options_.gid_index = 2;
  EXPECT_THAT(Error(), HasSubstr("has no GID with index 2"));
}

TEST_F(RailTest, InfiniBandTakesItsFirstGid) {
  verbs_.devices = {{"ib0",
                     true,
                     IBV_LINK_LAYER_INFINIBAND,
                     {FakeVerbs::GidEntry(IBV_GID_TYPE_IB, kLinkLocal),
                      FakeVerbs::GidEntry(IBV_GID_TYPE_IB, kGlobal)}}};
  const auto rails = Open();
  ASSERT_TRUE(rails.ok()) << rails.status();
  EXPECT_EQ((*rails)[0]->gid_index(), 0);
  EXPECT_EQ((*rails)[0]->port().kind, PortKind::kInfiniBand);
}

class NoMemory final : public Buffer {
 public:
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::byte* data() const override { return nullptr; }
  size_t size() const override { return 4096; }
  int shared_fd() const override { return -1; }
};

TEST_F(RailTest, ARegistrationThatFailsNamesTheLimit) {
  verbs_.devices = {{"a", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}}};
  const auto rails = Open();
  const NoMemory memory;
  EXPECT_TRUE((*rails)[0]->Register(memory, nullptr).ok());
  verbs_.registration_error = ENOMEM;
  const auto failed = (*rails)[0]->Register(memory, nullptr);
  EXPECT_EQ(Message(failed.status()),
            "RDMA device a cannot register 4096 bytes: Cannot allocate memory (raise the limit of "
            "locked memory: ulimit -l)");
}

TEST_F(RailTest, TheMemoryOfAGpuIsRegisteredByItsDmaBufOrElseByItsAddress) {
  verbs_.devices = {{"a", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}}};
  const auto rails = Open();
  FakeGpu gpu;
  const auto memory = *gpu.Allocate(4096, Sharing::kShared);
  EXPECT_TRUE((*rails)[0]->Register(*memory, &gpu).ok());
  verbs_.dma_buf_error = EOPNOTSUPP;
  EXPECT_TRUE((*rails)[0]->Register(*memory, &gpu).ok());
  verbs_.dma_buf_error = 0;
  gpu.RemoveDmaBufs();
  EXPECT_TRUE((*rails)[0]->Register(*memory, &gpu).ok());
  EXPECT_THAT(verbs_.registered, testing::ElementsAre("dma-buf", "address", "address"));
  verbs_.registration_error = EFAULT;
  EXPECT_EQ(
      Message((*rails)[0]->Register(*memory, &gpu).status()),
      "RDMA device a cannot register 4096 bytes of a GPU's memory: by dma-buf: the buffer has "
      "no dma-buf; by its address: Bad address (GPUDirect RDMA needs the open NVIDIA kernel "
      "modules or the module nvidia-peermem)");
  EXPECT_FALSE((*rails)[0]->Register(*memory, nullptr).ok());
}

TEST_F(RailTest, AFailedRailIsPausedForAWhile) {
  verbs_.devices = {{"a", true, IBV_LINK_LAYER_ETHERNET, {V2(kV4)}}};
  const auto rails = Open();
  Rail& rail = *(*rails)[0];
  const Time now{std::chrono::hours(1)};
  EXPECT_FALSE(rail.is_paused(now));
  rail.MarkFailed(now);
  EXPECT_TRUE(rail.is_paused(now));
  EXPECT_FALSE(rail.is_paused(now + Rail::kRetryAfter));
}

}  // namespace
}  // namespace baton
