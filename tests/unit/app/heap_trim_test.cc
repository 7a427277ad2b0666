#include "common/app/heap_trim.h"

#include <unistd.h>

#include <fstream>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPiece = 16 << 10;
constexpr Time kStart{std::chrono::hours(1)};

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// The pieces of large messages are freed while a small block behind them stays in use.
TEST(HeapTrim, GivesBackWhatLargeMessagesLeave) {
  const size_t before = ResidentBytes();
  std::vector<std::vector<char>> pieces;
  for (size_t bytes = 0; bytes < 150 * kMiB; bytes += kPiece) pieces.emplace_back(kPiece, 'x');
  const std::vector<char> last(kPiece, 'x');
  pieces.clear();
  HeapTrim trim(std::chrono::seconds(10), 8 * kMiB);
// _GLIBCXX_TSAN: libstdc++'s __SANITIZE_THREAD__, which users of generated code undefine.
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN)
  EXPECT_FALSE(trim.Tick(kStart)) << "the sanitizer has a malloc of its own";
#else
  ASSERT_GT(ResidentBytes(), before + 100 * kMiB) << "malloc has kept nothing";
  EXPECT_TRUE(trim.Tick(kStart));
  EXPECT_LT(ResidentBytes(), before + 40 * kMiB);
  EXPECT_FALSE(trim.Tick(kStart + std::chrono::seconds(11))) << "nothing is left to give back";
#endif
}

TEST(HeapTrim, LooksEachIntervalAndKeepsWhatIsSmall) {
  HeapTrim never(std::chrono::seconds(10), size_t{1} << 60);
  EXPECT_FALSE(never.Tick(kStart));
  HeapTrim always(std::chrono::seconds(10), 0);
  always.Tick(kStart);
  EXPECT_FALSE(always.Tick(kStart + std::chrono::seconds(9)));
}

}  // namespace
}  // namespace baton
