#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/local_socket.h"
#include "kernels/cpu/cpu_device.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/slot_table.h"
#include "tests/conformance/test_memory.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 99;
constexpr size_t kPeerBytes = 8192;

template <class T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Processes of this host and user that send arbitrary bytes and descriptors to a shm endpoint.
class HostileShmPeerTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = *ShmTransport::Create({}, [this](std::string_view line) { log_ += line; });
    region_ = *transport_->Register(arena_.buffer());
    const std::string descriptor = *transport_->Listen();
    name_ = descriptor.substr(descriptor.rfind('|') + 1);
    ASSERT_TRUE(transport_->OpenWindow({kKey, region_->id(), {{1024, 2048}}}).ok());
  }
  void TearDown() override {
    transport_->CloseWindow(kKey);
    region_.reset();
  }

  // Connects, and sends `bytes` with `descriptors`.
  UniqueFd Send(std::string bytes, const std::vector<int>& descriptors) const {
    UniqueFd socket = *ConnectLocal(name_, SOCK_STREAM);
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), std::ssize(bytes));
    return socket;
  }
  std::string GoodPreface() const {
    Preface preface;
    preface.kind = PayloadKind::kMapped;
    preface.region = region_->id();
    return Bytes(preface);
  }
  static std::string Frame(const WriteRun& run, uint64_t key = kKey) {
    WriteHeader header;
    header.op = 1;
    header.run_count = 1;
    header.window_key = key;
    header.payload_bytes = run.bytes;
    return Bytes(header) + Bytes(run);
  }
  void Serve() {
    for (int i = 0; i < 50; ++i) {
      std::array<Arrival, 8> arrivals;
      arrived_ += transport_->Poll(Time(std::chrono::hours(1)), arrivals);
    }
  }
  // The peer's connection is closed for the reason `why`, and nothing has changed.
  void ExpectCutOff(std::string_view why) {
    Serve();
    EXPECT_EQ(static_cast<FrameTransport&>(*transport_).connection_count(), 0u);
    EXPECT_NE(log_.find(why), std::string::npos) << "'" << log_ << "' instead of " << why;
    log_.clear();
    EXPECT_EQ(arrived_, 0u);
    EXPECT_EQ(arena_.GetAll(), std::vector<std::byte>(arena_.size()));
  }

  CpuDevice cpu_;
  TestMemory arena_{cpu_, 4096};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  std::string name_;
  std::string log_;
  size_t arrived_ = 0;
  // What an honest peer sends.
  const UniqueFd memory_ = *MakeSealedMemory("test", kPeerBytes);
  const std::unique_ptr<SlotTable> slots_ = *SlotTable::Create();
};

TEST_F(HostileShmPeerTest, AnHonestPeerIsServed) {
  const std::string payload(1000, 'p');
  ASSERT_EQ(::pwrite(memory_.get(), payload.data(), payload.size(), 5), std::ssize(payload));
  ASSERT_TRUE(slots_->Start(1));
  const UniqueFd peer =
      Send(GoodPreface() + Frame({5, 1024, 1000}), {memory_.get(), slots_->fd().get()});
  Serve();
  EXPECT_EQ(arrived_, 1u) << log_;
  EXPECT_EQ(std::memcmp(arena_.buffer().data() + 1024, payload.data(), payload.size()), 0);
}

TEST_F(HostileShmPeerTest, GarbageIsCutOffWithAReason) {
  const UniqueFd peer = Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", {});
  ExpectCutOff("opens with");
}

TEST_F(HostileShmPeerTest, OtherNumbersOfDescriptorsAreRefused) {
  for (const size_t count : {size_t{0}, size_t{1}}) {
    const UniqueFd peer = Send(GoodPreface(), std::vector<int>(count, memory_.get()));
    ExpectCutOff("descriptors instead of 2");
  }
}

// A peer that could shrink its memory would end this process by SIGBUS when it reads there.
TEST_F(HostileShmPeerTest, MemoryThatCanShrinkIsRefused) {
  const UniqueFd shrinks(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(shrinks.get(), 1 << 20), 0);
  const UniqueFd is_no_memory(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  for (const int wrong : {shrinks.get(), is_no_memory.get()}) {
    {
      const UniqueFd peer = Send(GoodPreface(), {wrong, slots_->fd().get()});
      ExpectCutOff("not a memfd sealed against shrinking");
    }
    const UniqueFd peer = Send(GoodPreface(), {memory_.get(), wrong});
    ExpectCutOff("not a memfd sealed against shrinking");
  }
}

TEST_F(HostileShmPeerTest, ATableOfTooFewSlotsIsRefused) {
  const UniqueFd small = *MakeSealedMemory("test", SlotTable::kSlots * sizeof(uint64_t) - 1);
  const UniqueFd peer = Send(GoodPreface(), {memory_.get(), small.get()});
  ExpectCutOff(std::to_string(SlotTable::kSlots * sizeof(uint64_t)));
}

TEST_F(HostileShmPeerTest, RunsOutsideItsMemoryAreCutOff) {
  ASSERT_TRUE(slots_->Start(1));
  for (const WriteRun& run : {WriteRun{kPeerBytes - 999, 1024, 1000},
                              WriteRun{~uint64_t{0} - 500, 1024, 1000},
                              WriteRun{0, 1024, uint64_t{1} << 30}}) {
    const UniqueFd peer = Send(GoodPreface() + Frame(run), {memory_.get(), slots_->fd().get()});
    ExpectCutOff("outside a memory of 8192 bytes");
  }
  const UniqueFd peer = Send(GoodPreface() + Frame({0, 1024, uint64_t{1} << 40}),
                             {memory_.get(), slots_->fd().get()});
  ExpectCutOff("1099511627776 bytes");
}

TEST_F(HostileShmPeerTest, WritesWithoutTheRightTouchNothing) {
  ASSERT_TRUE(slots_->Start(1));
  for (const std::string& frame :
       {Frame({0, 1024, 1000}, kKey + 1), Frame({0, 1000, 1000}), Frame({0, 3000, 1000})}) {
    const UniqueFd peer = Send(GoodPreface() + frame, {memory_.get(), slots_->fd().get()});
    Serve();
    EXPECT_EQ(arrived_, 0u);
    WriteAck ack;
    EXPECT_EQ(::recv(peer.get(), &ack, sizeof(ack), MSG_DONTWAIT), std::ssize(Bytes(ack)));
    EXPECT_NE(ack.code, 0u);
  }
  EXPECT_EQ(arena_.GetAll(), std::vector<std::byte>(arena_.size()));
}

}  // namespace
}  // namespace baton
