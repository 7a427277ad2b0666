#include "common/group/rank_socket.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr Duration kLimit = std::chrono::seconds(20);

TEST(RankSocketTest, CarriesTextAndADescriptor) {
  auto [a, b] = RankSocket::Pair().value();
  const UniqueFd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 1234), 0);
  ASSERT_TRUE(a.Send("arena", memory.get()).ok());
  ASSERT_TRUE(a.Send(std::string(60000, 'x')).ok());
  const auto first = b.Receive(kLimit);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->text, "arena");
  struct stat file {};
  ASSERT_EQ(::fstat(first->descriptor.get(), &file), 0);
  EXPECT_EQ(file.st_size, 1234);
  const auto second = b.Receive(kLimit);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->text.size(), 60000U);
  EXPECT_FALSE(second->descriptor.valid());
}

TEST(RankSocketTest, AWaitEndsWhenTheOtherEndCloses) {
  auto [a, b] = RankSocket::Pair().value();
  std::jthread closes([end = std::move(a)]() mutable { const RankSocket closed(std::move(end)); });
  EXPECT_EQ(b.Receive(kLimit).status().code(), StatusCode::kUnavailable);
  closes.join();
  EXPECT_EQ(b.Send("text").code(), StatusCode::kUnavailable);
}

TEST(RankSocketTest, AWaitIsBounded) {
  auto [a, b] = RankSocket::Pair().value();
  EXPECT_EQ(b.Receive(std::chrono::milliseconds(5)).status().code(), StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace baton
