#include <cuda_runtime_api.h>

#include <cstdio>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/cuda_status.h"
#include "tests/gpu/exchange_fixture.h"

// Messages between the stages of a pipeline of GPUs.
namespace baton::cuda {
namespace {

class GpuStages : public GpuExchange {
 protected:
  void SetUp() override {
    GpuExchange::SetUp();
    if (IsSkipped()) return;
    Open(/*pipeline=*/true);
    ASSERT_GT(at(exchanges_, 0)->stage_slot_bytes(), 0u) << at(exchanges_, 0)->description();
  }

  // The messages of a tensor, as the rank's stage lists them.
  static Ops Messages(int rank, const Tensor& x, bool send) {
    const int other = (rank + (send ? 1 : ranks() - 1)) % ranks();
    return List(
        {.place = RankPlace::Of(1, ranks(), rank), .stage_slot_bytes = StageSlots::kSlotBytes},
        nullptr,
        [&](ListedExchange& listed) {
          send ? listed.SendToStage(x, other) : listed.ReceiveFromStage(x, other);
        });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks,
                         GpuStages,
                         testing::ValuesIn(RankThreads::Sizes()),
                         testing::PrintToStringParamName());

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};

// Each stage sends what it has received, and the first one has its own numbers back at the end.
TEST_P(GpuStages, NumbersPassAllStagesUnchanged) {
  // Vectors, words, gaps between rows, one number, several slots.
  const std::vector<Shape> shapes = {
      {3, 4096, 4096}, {5, 33, 33}, {7, 40, 48}, {1, 1, 128}, {4100, 4096, 4096}};
  for (int round = 0; round < 60; ++round) {
    const Shape& shape = shapes[static_cast<size_t>(round) % shapes.size()];
    const bool graph = round / 5 % 2 != 0;
    SCOPED_TRACE(testing::Message() << "round " << round);
    const auto numbers =
        Random(DType::kF32, static_cast<size_t>(shape.rows * shape.stride), 7 + round);
    std::vector<float> got;
    ForRanks([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(Rows* const mine,
                             Allocate(rank, DType::kF32, shape.rows, shape.cols, shape.stride));
      const Ops send = Messages(rank, mine->tensor(), true);
      const Ops receive = Messages(rank, mine->tensor(), false);
      if (rank != 0) {
        Ops both = receive;
        both.insert(both.end(), send.begin(), send.end());
        return Launch(rank, both, graph);
      }
      BATON_RETURN_IF_ERROR(mine->Write(numbers));
      BATON_RETURN_IF_ERROR(Launch(rank, send, graph));
      // What comes back must be more than what is still there.
      BATON_RETURN_IF_ERROR(mine->Write(std::vector<float>(numbers.size(), -1)));
      BATON_RETURN_IF_ERROR(at(exchanges_, rank)->AwaitMessage(at(streams_, rank)));
      BATON_RETURN_IF_ERROR(LaunchAll(rank, receive));
      BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(at(streams_, rank)));
      BATON_ASSIGN_OR_RETURN(got, mine->Read());
      return OkStatus();
    });
    for (size_t i = 0; i < got.size(); ++i) {
      const bool gap = static_cast<int64_t>(i) % shape.stride >= shape.cols;
      ASSERT_EQ(got[i], gap ? -1 : numbers[i]) << "number " << i;
    }
  }
}

// The last stage must not wait for the first one, which computes its part of the next step.
TEST_P(GpuStages, ASenderIsAheadByAsManyMessagesAsThereAreSlots) {
  constexpr size_t kNumbers = 1000;
  std::vector<std::vector<float>> sent;
  for (uint32_t i = 0; i < kStageSlots; ++i) sent.push_back(Random(DType::kF32, kNumbers, i));
  const int last = ranks() - 1;
  for (int round = 0; round < 3; ++round) {
    ForRanks([&](int rank) -> Status {
      if (rank != last) return OkStatus();
      BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kF32, 1, kNumbers, kNumbers));
      for (const std::vector<float>& message : sent) {
        BATON_RETURN_IF_ERROR(mine->Write(message));
        BATON_RETURN_IF_ERROR(Launch(rank, Messages(rank, mine->tensor(), true), false));
      }
      return OkStatus();
    });
    std::vector<std::vector<float>> got(kStageSlots);
    ForRanks([&](int rank) -> Status {
      if (rank != 0) return OkStatus();
      BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kF32, 1, kNumbers, kNumbers));
      for (std::vector<float>& message : got) {
        BATON_RETURN_IF_ERROR(at(exchanges_, rank)->AwaitMessage(at(streams_, rank)));
        BATON_RETURN_IF_ERROR(Launch(rank, Messages(rank, mine->tensor(), false), false));
        BATON_ASSIGN_OR_RETURN(message, mine->Read());
      }
      return OkStatus();
    });
    EXPECT_EQ(got, sent);
  }
}

TEST_P(GpuStages, AnAbortEndsAllWaits) {
  std::vector<Duration> took(static_cast<size_t>(ranks()));
  ForRanks([&](int rank) -> Status {
    if (rank != 0) return OkStatus();  // the others never come
    BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kF32, 64, 4096, 4096));
    for (uint32_t i = 0; i < 2 * kStageSlots; ++i) {
      BATON_RETURN_IF_ERROR(LaunchAll(rank, Messages(rank, mine->tensor(), true)));
      BATON_RETURN_IF_ERROR(LaunchAll(rank, Messages(rank, mine->tensor(), false)));
    }
    std::jthread breaker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      at(exchanges_, rank)->watch().Fail(MakeStatus(StatusCode::kUnavailable, "the end"));
    });
    const baton::Time began = SteadyClock().Now();
    Status ended = ToStatus(cudaStreamSynchronize(at(streams_, rank)), "aborted messages");
    const Status awaited = at(exchanges_, rank)->AwaitMessage(at(streams_, rank));
    EXPECT_EQ(Message(awaited), "the end");
    at(took, rank) = SteadyClock().Now() - began;
    return ended;
  });
  EXPECT_LT(took[0], std::chrono::seconds(1)) << "a group must end within a second";
}

// Prints the time of a message of a decode step and of a prompt, and the share of a link.
TEST_P(GpuStages, TimesOfMessages) {
  constexpr int kRepeats = 40;
  for (const int64_t rows : {1, 64, 256, 2048, 8192}) {
    double microseconds = 0;
    ForRanks([&](int rank) -> Status {
      if (rank > 1) return OkStatus();
      BATON_ASSIGN_OR_RETURN(Rows* const mine, Allocate(rank, DType::kF32, rows, 4096, 4096));
      const Ops ops = Messages(rank, mine->tensor(), rank == 0);
      BATON_RETURN_IF_ERROR(Launch(rank, ops, false));
      const baton::Time began = SteadyClock().Now();
      for (int i = 0; i < kRepeats; ++i) BATON_RETURN_IF_ERROR(LaunchAll(rank, ops));
      BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(at(streams_, rank)));
      if (rank == 1) microseconds = ToMillis(SteadyClock().Now() - began) * 1e3 / kRepeats;
      return OkStatus();
    });
    std::printf("{\"stage_message\": %ld, \"bytes\": %ld, \"us\": %.1f, \"gb_per_s\": %.0f}\n",
                static_cast<long>(rows),
                static_cast<long>(rows * 4096 * 4),
                microseconds,
                static_cast<double>(rows * 4096 * 4) / microseconds / 1e3);
  }
}

}  // namespace
}  // namespace baton::cuda
