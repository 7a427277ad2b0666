#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/busy_poll_condition.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/edit_distance.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/mailbox.h"
#include "common/base/mapped_file.h"
#include "common/base/quantile.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/base/token_list.h"
#include "common/base/unique_fd.h"
#include "tests/support/avx_state.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StatusTest, AnnotateKeepsTheCodeAndPutsTheContextFirst) {
  const Status error = Annotate(InvalidArgument("top_p is {}", 2), "request 7");
  EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(error), "request 7: top_p is 2");
  EXPECT_TRUE(Annotate(OkStatus(), "request 7").ok());
}

TEST(StatusTest, AssignOrReturnPassesTheErrorOn) {
  const auto twice = [](const StatusOr<int>& in) -> StatusOr<int> {
    BATON_ASSIGN_OR_RETURN(const int value, in);
    return value * 2;
  };
  EXPECT_EQ(*twice(4), 8);
  EXPECT_EQ(twice(InvalidArgument("no")).status().code(), StatusCode::kInvalidArgument);
}

TEST(TokenListTest, CopiesShareTheTokens) {
  const TokenList tokens = std::vector<TokenId>{1, 2, 3};
  const std::vector<TokenList> copies(2, tokens);
  EXPECT_EQ(copies.back().data(), tokens.data());
  EXPECT_EQ(tokens.Plus({}).data(), tokens.data());
  EXPECT_THAT(tokens.Plus(std::vector<TokenId>{4}).ToVector(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(tokens.ToVector(), ElementsAre(1, 2, 3)) << "Plus leaves the list as it is";
  EXPECT_EQ(tokens, (TokenList{1, 2, 3}));
  EXPECT_NE(tokens, (TokenList{1, 2, 4}));
  EXPECT_TRUE(TokenList().empty());
  EXPECT_EQ(TokenList(), TokenList(std::vector<TokenId>()));
}

TEST(IdsTest, HashAndFormatAsTheirValue) {
  EXPECT_EQ(fmt::format("{}", BlockId(12)), "12");
  std::unordered_set<RequestId> ids = {RequestId(1), RequestId(1), RequestId(2)};
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_LT(Epoch(1), Epoch(2));
}

TEST(IdsTest, ABlockIsNamedByTierAndIndex) {
  constexpr BlockId kLast(1, (1 << BlockId::kIndexBits) - 1);
  EXPECT_EQ(kLast.tier(), 1u);
  EXPECT_EQ(kLast.index(), 0xFFFFFFu);
  EXPECT_EQ(fmt::format("{}", kLast), "16777215 of tier 1");
  EXPECT_FALSE(kLast.InArena(1 << BlockId::kIndexBits));
  constexpr BlockId kBlock(7);
  EXPECT_EQ(kBlock, BlockId(BlockId::kDeviceTier, 7));
  EXPECT_NE(kBlock, BlockId(1, 7));
  EXPECT_EQ(kBlock.arena_index(), 7u);
  EXPECT_TRUE(kBlock.InArena(8));
  EXPECT_FALSE(kBlock.InArena(7));
  EXPECT_DEATH((void)BlockId(1, 7).arena_index(), "block 7 of tier 1 is not in the arena");
}

TEST(MappedFileTest, MapsTheWholeFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("file", "baton");
  StatusOr<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file->bytes()[4]), 'n');
  EXPECT_EQ(*ReadFile(path), "baton");
  EXPECT_EQ(ReadFile(path, 4).status().code(), StatusCode::kResourceExhausted);
}

TEST(MappedFileTest, NamesThePathThatIsMissing) {
  const Status error = MappedFile::Open("/nonexistent/model.gguf").status();
  EXPECT_EQ(error.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(error)), HasSubstr("/nonexistent/model.gguf"));
  EXPECT_EQ(MappedFile::Open("/").status().code(), StatusCode::kInvalidArgument);
}

// Whoever opens a named pipe waits for its writer.
TEST(MappedFileTest, RefusesByNameWhatIsNoFile) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket = folder.path() + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket.size(), sizeof(address.sun_path));
  std::copy(socket.begin(), socket.end(), address.sun_path);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
            0);
  const std::pair<std::string, std::string> cases[] = {{pipe, "a named pipe"},
                                                       {socket, "a socket"},
                                                       {folder.path(), "a directory"},
                                                       {"/dev/null", "a device"}};
  for (const auto& [path, kind] : cases) {
    for (const Status& status : {MappedFile::Open(path).status(), ReadFile(path).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(Message(status), fmt::format("{} is not a regular file, but {}", path, kind));
    }
  }
}

TEST(MappedFileTest, ReadsFilesThatDoNotTellTheirSize) {
  const auto status = ReadFile("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(*status, HasSubstr("Pid:"));
  EXPECT_EQ(ReadFile("/proc/self/status", 8).status().code(), StatusCode::kResourceExhausted);
  const TemporaryFolder folder;
  const std::string text(100'000, 'x');
  const std::string path = folder.Write("file", text);
  EXPECT_EQ(*ReadFile(path), text);
  EXPECT_EQ(*ReadFile(path, text.size()), text);
  EXPECT_EQ(ReadFile(path, text.size() - 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*ReadFile(folder.Write("empty", ""), 0), "");
}

TEST(MailboxTest, RefusesAboveTheLimitAndAfterClose) {
  Mailbox<int> mailbox;
  EXPECT_TRUE(mailbox.Post(1, 2));
  EXPECT_TRUE(mailbox.Post(2, 2));
  EXPECT_FALSE(mailbox.Post(3, 2));
  EXPECT_TRUE(mailbox.Post(4));
  mailbox.Close();
  EXPECT_FALSE(mailbox.Post(5));
  EXPECT_TRUE(mailbox.Wait(std::chrono::hours(1)));
  EXPECT_EQ(mailbox.TakeAll(), (std::vector<int>{1, 2, 4}));
  EXPECT_FALSE(mailbox.Wait(std::chrono::hours(1)));
}

TEST(BusyPollConditionTest, SeesAChangeWithoutNotifyWhileItBusyPolls) {
  std::mutex mutex;
  BusyPollCondition condition;
  bool is_done = false;
  std::unique_lock lock(mutex);
  std::jthread other([&] {
    {
      std::lock_guard guard(mutex);
      condition.BusyPollFor(std::chrono::seconds(20));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::lock_guard guard(mutex);
    is_done = true;  // without Notify
  });
  const Time begin = SteadyClock().Now();
  EXPECT_TRUE(condition.Wait(lock, std::chrono::seconds(20), [&] { return is_done; }));
  EXPECT_LT(SteadyClock().Now() - begin, std::chrono::seconds(10));
  EXPECT_FALSE(condition.Wait(lock, std::chrono::milliseconds(1), [] { return false; }));
}

TEST(MailboxTest, WakesAWaitingReceiver) {
  Mailbox<int> mailbox;
  std::jthread sender = StartThread("sender", [&](const std::stop_token&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(mailbox.Post(5));
  });
  const Time begin = SteadyClock().Now();
  EXPECT_TRUE(mailbox.Wait(std::chrono::seconds(20)));
  EXPECT_LT(SteadyClock().Now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(mailbox.TakeAll(), std::vector<int>{5});
}

TEST(MailboxTest, MessagesThatArePostedTogetherWakeOnce) {
  Mailbox<int> mailbox;
  std::jthread sender = StartThread("sender", [&](const std::stop_token&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(mailbox.PostAll({5, 6}));
  });
  const Time begin = SteadyClock().Now();
  EXPECT_TRUE(mailbox.Wait(std::chrono::seconds(20)));
  EXPECT_LT(SteadyClock().Now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(mailbox.PostAll({}));
  EXPECT_TRUE(mailbox.PostAll({7}));
  EXPECT_EQ(mailbox.TakeAll(), (std::vector<int>{5, 6, 7}));
  mailbox.Close();
  EXPECT_FALSE(mailbox.PostAll({8}));

  int wakes = 0;
  Mailbox<int> elsewhere([&] { ++wakes; });
  EXPECT_TRUE(elsewhere.PostAll({1, 2}));
  EXPECT_TRUE(elsewhere.PostAll({3}));
  EXPECT_EQ(wakes, 1);
}

TEST(MailboxTest, CallsWakeForTheFirstMessageAfterEachTake) {
  int wakes = 0;
  Mailbox<int> mailbox([&] { ++wakes; });
  EXPECT_TRUE(mailbox.Post(1));
  EXPECT_TRUE(mailbox.Post(2));
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(mailbox.TakeAll().size(), 2u);
  EXPECT_TRUE(mailbox.Post(3));
  EXPECT_EQ(wakes, 2);
}

TEST(HashTest, DependsOnBytesAndSeed) {
  const std::string text = "baton";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(Xxh3Wide(bytes, 1), Xxh3Wide(bytes, 1));
  EXPECT_NE(Xxh3Wide(bytes, 1), Xxh3Wide(bytes, 2));
  EXPECT_NE(Xxh3(bytes), Xxh3(bytes.first(4)));
  EXPECT_NE(RandomId(), RandomId());
}

TEST(HashTest, IsXxh3AtEverySize) {
  std::vector<std::byte> bytes(size_t{1} << 16);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  for (size_t size = 0; size <= bytes.size(); size += size < 4200 ? 1 : 977) {
    const uint64_t seed = size % 3 == 0 ? 0 : size * 0x9E3779B97F4A7C15;
    const auto part = std::span(bytes).subspan(bytes.size() - size);
    const XXH128_hash_t wide = XXH3_128bits_withSeed(part.data(), size, seed);
    ASSERT_EQ(Xxh3Wide(part, seed), (Hash128{wide.high64, wide.low64})) << size;
    ASSERT_EQ(Xxh3(part, seed), XXH3_64bits_withSeed(part.data(), size, seed)) << size;
  }
}

TEST(HashTest, LeavesNoAvxStateBehind) {
  if (!TellsAvxState()) GTEST_SKIP() << "this processor does not tell whether AVX is in use";
  const std::vector<std::byte> bytes(5000);
  (void)Xxh3(bytes);
  EXPECT_FALSE(AvxInUse());
  (void)Xxh3Wide(bytes, 1);
  EXPECT_FALSE(AvxInUse());
}

TEST(HashTest, AForkedProcessHasRandomIdsOfItsOwn) {
  RandomId();  // so that both processes would have the rest of one batch
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const uint64_t id = RandomId();
    ::_exit(::write(fds[1], &id, sizeof(id)) == sizeof(id) ? 0 : 1);
  }
  uint64_t theirs = 0;
  EXPECT_EQ(::read(fds[0], &theirs, sizeof(theirs)), ssize_t{sizeof(theirs)});
  EXPECT_NE(theirs, RandomId());
  ::close(fds[0]);
  ::close(fds[1]);
  ::waitpid(child, nullptr, 0);
}

TEST(UniqueFdTest, ClosesWhatItOwns) {
  int raw = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY));
    raw = fd.get();
    UniqueFd moved = std::move(fd);
    EXPECT_TRUE(moved.valid());
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(QuantileTest, IsTheNearestOfTheValues) {
  EXPECT_EQ(Quantile({}, 0.5), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  const std::vector<double> values = {50, 10, 40, 20, 30};
  EXPECT_EQ(Quantile(values, 0), 10);
  EXPECT_EQ(Quantile(values, 0.99), 50);
  EXPECT_EQ(Quantile(values, 0.6), 30);
  EXPECT_EQ(Quantile(values, 0.65), 40);
}

TEST(EditDistanceTest, CountsChangedAddedAndRemovedCharacters) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("qwen3", "qwen3"), 0u);
}

TEST(CheckDeathTest, SaysWhatBroke) {
  EXPECT_DEATH(BATON_CHECK(1 > 2, "block {}", 7), "invariant broken: 1 > 2 \\(block 7\\)");
}

}  // namespace
}  // namespace baton
