#include "common/log/line_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "tests/support/full_pipe.h"

namespace baton {
namespace {

using ::testing::EndsWith;

constexpr Duration kLong = std::chrono::seconds(30);
constexpr Duration kShort = std::chrono::milliseconds(20);
constexpr size_t kRoom = 10'000;
constexpr int kLineBytes = 10;

std::string Notice(uint64_t count) {
  return fmt::format("[{} dropped]\n", count);
}

std::string Line(int number) {
  return fmt::format("line {:04}\n", number);
}

class LineWriterTest : public ::testing::Test {
 protected:
  LineWriterTest()
      : fd_(::open(pipe_.path().c_str(), O_WRONLY | O_CLOEXEC)),
        writer_(std::make_unique<LineWriter>(fd_.get(), kRoom, Notice)) {}

  FullPipe pipe_;
  UniqueFd fd_;
  std::unique_ptr<LineWriter> writer_;
};

TEST_F(LineWriterTest, WritesInOrder) {
  pipe_.ReadFilling();
  for (int i = 0; i < 100; ++i) writer_->Write(Line(i));
  EXPECT_TRUE(writer_->Flush(kLong));
  std::string all;
  for (int i = 0; i < 100; ++i) all += Line(i);
  EXPECT_EQ(pipe_.ReadUntil(Line(99)), all);
  EXPECT_EQ(writer_->dropped(), 0u);
}

TEST_F(LineWriterTest, AFullPipeBlocksNobody) {
  writer_->Write(Line(0));
  EXPECT_FALSE(writer_->Flush(kShort));
  EXPECT_FALSE(writer_->FlushInSignalHandler(kShort));
  EXPECT_EQ(writer_->dropped(), 0u);
  EXPECT_EQ(pipe_.ReadUntil(Line(0)), Line(0));
  EXPECT_TRUE(writer_->Flush(kLong));
  EXPECT_TRUE(writer_->FlushInSignalHandler(kShort));
}

TEST_F(LineWriterTest, WhatIsTooMuchIsDroppedAndCountedTheOldestFirst) {
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) writer_->Write(Line(i));
  const uint64_t dropped = writer_->dropped();
  EXPECT_GE(dropped, kLines - (kRoom + PIPE_BUF) / kLineBytes);
  std::istringstream text(pipe_.ReadUntil(Line(kLines - 1)));
  EXPECT_TRUE(writer_->Flush(kLong));
  // Every line was written, or is counted by a notice at its place.
  int next = 0;
  for (std::string line; std::getline(text, line);) {
    int number = 0;
    if (std::sscanf(line.c_str(), "[%d dropped]", &number) == 1) {
      next += number;
    } else {
      EXPECT_EQ(line + "\n", Line(next++));
    }
  }
  EXPECT_EQ(next, kLines);
}

TEST_F(LineWriterTest, AReaderThatLeftIsNoMoreThanDroppedText) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd write_end(ends[1]);
  ::close(ends[0]);
  LineWriter writer(write_end.get(), kRoom, Notice);
  writer.Write("nobody reads this\n");
  EXPECT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(writer.dropped(), 1u);
}

// The test would hang if the destructor waited for the reader.
TEST_F(LineWriterTest, TheDestructorDoesNotWaitForAReader) {
  for (int i = 0; i < 10; ++i) writer_->Write(Line(i));
  writer_.reset();
}

TEST_F(LineWriterTest, TheDestructorWritesWhatThePipeTakes) {
  pipe_.ReadFilling();
  for (int i = 0; i < 100; ++i) writer_->Write(Line(i));
  writer_.reset();
  EXPECT_THAT(pipe_.ReadUntil(Line(99)), EndsWith(Line(99)));
}

// The thread blocks all signals, so that the threads that wait for signals receive them.
TEST_F(LineWriterTest, ItsThreadLeavesSignalsToOthers) {
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGUSR1);
  writer_->Write(Line(0));  // starts the thread
  ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
  ::kill(::getpid(), SIGUSR1);  // ends the process if a thread does not block the signal
  const timespec limit{30, 0};
  EXPECT_EQ(::sigtimedwait(&term, nullptr, &limit), SIGUSR1);
  ::pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
}

}  // namespace
}  // namespace baton
