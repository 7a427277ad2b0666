#include "common/collective/group_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using testing::HasSubstr;

GroupLayout Layout() {
  return {.ranks = 3, .collectives = {{.ranks = {0, 1, 2}, .slot_bytes = 4096}}};
}

std::unique_ptr<GroupMemory> Memory() {
  auto memory = GroupMemory::Create(Layout());
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

Status OpenStatus(int fd, const GroupLayout& layout) {
  const auto opened = GroupMemory::Open(UniqueFd(::dup(fd)), layout);
  EXPECT_TRUE(opened.ok() || opened.status().code() == StatusCode::kInvalidArgument);
  return opened.status();
}

// Overwrites the 8 bytes at `offset` of the group's memory.
void Overwrite(const GroupMemory& memory, off_t offset, uint64_t value) {
  ASSERT_EQ(::pwrite(memory.fd(), &value, sizeof(value), offset), ssize_t{sizeof(value)});
}

TEST(GroupMemoryTest, TheFollowerSeesTheAbortOfTheLeader) {
  const auto leader = Memory();
  for (const auto& opened : {GroupMemory::Open(UniqueFd(::dup(leader->fd())), Layout()),
                             GroupMemory::OpenOf(::getpid(), leader->fd(), Layout())}) {
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->aborted(), leader->aborted());
  }
  const auto follower = GroupMemory::Open(UniqueFd(::dup(leader->fd())), Layout());
  ASSERT_TRUE(follower.ok());
  EXPECT_TRUE((*follower)->abort_status().ok());
  EXPECT_EQ((*follower)->aborted_by(), std::nullopt);
  leader->Abort(2, "killed");
  (*follower)->Abort(1, "later");
  EXPECT_TRUE((*follower)->aborted());
  EXPECT_EQ((*follower)->aborted_by(), 2);
  EXPECT_EQ(leader->aborted_by(), 2);
  EXPECT_EQ(Message((*follower)->abort_status()), "the group is aborted because of rank 2: killed");
}

TEST(GroupMemoryTest, ALongMessageIsCut) {
  const auto memory = Memory();
  memory->Abort(0, std::string(5000, 'x'));
  EXPECT_EQ(Message(memory->abort_status()),
            "the group is aborted because of rank 0: " + std::string(1024, 'x'));
}

TEST(GroupMemoryTest, AnAbortWhoseProcessIsGoneBeforeTheMessageCounts) {
  const auto memory = Memory();
  Overwrite(*memory, 32, 3);  // rank 2, and no message
  EXPECT_EQ(Message(memory->abort_status()),
            "the group is aborted because of rank 2: no reason is known");
}

TEST(GroupMemoryTest, OtherFilesAreRefused) {
  const int pipe_end = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(Message(OpenStatus(pipe_end, Layout())), HasSubstr("is not a group's memory"));
  ::close(pipe_end);
  const UniqueFd shrinks(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_THAT(Message(OpenStatus(shrinks.get(), Layout())), HasSubstr("is not a group's memory"));
  EXPECT_THAT(Message(OpenStatus(-1, Layout())), HasSubstr("is not a group's memory"));
  const auto none = GroupMemory::OpenOf(::getpid(), 9999, Layout());
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(none.status()), HasSubstr("/fd/9999"));
}

TEST(GroupMemoryTest, OtherLayoutsAreRefused) {
  const auto memory = Memory();
  GroupLayout layout = Layout();
  layout.collectives[0].slot_bytes = 8192;
  EXPECT_THAT(Message(OpenStatus(memory->fd(), layout)),
              HasSubstr("the layout of this rank needs"));
  layout = Layout();
  layout.collectives[0].ranks = {0, 2, 1};
  EXPECT_THAT(Message(OpenStatus(memory->fd(), layout)),
              HasSubstr("the group's memory has layout"));
  layout = Layout();
  layout.ranks = 4;
  EXPECT_EQ(Message(OpenStatus(memory->fd(), layout)),
            "the group's memory is for 3 ranks; this rank expects 4");
}

TEST(GroupMemoryTest, OtherHeadersAreRefused) {
  const auto memory = Memory();
  EXPECT_TRUE(OpenStatus(memory->fd(), Layout()).ok());
  uint64_t version_and_ranks = 0;
  ASSERT_EQ(::pread(memory->fd(), &version_and_ranks, 8, 8), 8);
  Overwrite(*memory, 8, version_and_ranks + 1);
  EXPECT_EQ(Message(OpenStatus(memory->fd(), Layout())),
            "the group's memory has version 2; this program has version 1");
  Overwrite(*memory, 0, 7);
  EXPECT_THAT(Message(OpenStatus(memory->fd(), Layout())), HasSubstr("its first word is 0x7"));
}

TEST(GroupMemoryTest, WrongLayoutsAreNamed) {
  const auto problem = [](const GroupLayout& layout) {
    return std::string(Message(GroupMemory::Create(layout).status()));
  };
  EXPECT_THAT(problem({.ranks = 0, .collectives = {}}), HasSubstr("the group has 0 ranks"));
  EXPECT_THAT(problem({.ranks = 2, .collectives = {{.ranks = {0, 2}}}}), HasSubstr("names rank 2"));
  EXPECT_THAT(problem({.ranks = 2, .collectives = {{.ranks = {0, 0}}}}), HasSubstr("names rank 0"));
  EXPECT_THAT(problem({.ranks = 2, .collectives = {{.ranks = {}}}}), HasSubstr("has no ranks"));
  EXPECT_THAT(problem({.ranks = 2, .collectives = {{.ranks = {0, 1}, .slot_bytes = 6}}}),
              HasSubstr("slot_bytes of collective 0 is 6"));
}

}  // namespace
}  // namespace baton
