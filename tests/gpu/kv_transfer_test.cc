// KV transports with the memory of real GPUs: the conformance suite, whole hand-offs, and processes
// that are killed or stopped. With two GPUs, each side uses one of them.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kvtransfer/data_plane/make_transport.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/layout_order.h"
#include "tests/conformance/process_fault.h"
#include "tests/conformance/transport_conformance.h"

namespace baton {
namespace {

// The GPUs of all tests. They are opened when gtest asks for the parameters of the tests, and freed
// before main returns: after that, NCCL and CUDA end their own state.
class Gpus final : public testing::Environment {
 public:
  Gpus() : backends_{Open("cuda:0"), Open("cuda:1")} {}
  void TearDown() override {
    for (auto& backend : backends_) backend.reset();
  }
  Backend* at(int index) const { return backends_[index].get(); }

 private:
  static std::unique_ptr<Backend> Open(const char* device) {
    BackendOptions options;
    options.device = device;
    auto backend = OpenBackend(options);
    if (!backend.ok()) std::printf("%s\n", Message(backend.status()).data());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  std::unique_ptr<Backend> backends_[2];
};

// The GPU with this number, or null.
Backend* Gpu(int index) {
  static const auto* const gpus =  // gtest owns it
      static_cast<Gpus*>(testing::AddGlobalTestEnvironment(new Gpus));
  return gpus->at(index);
}

std::string LastDevice() {
  return Gpu(1) != nullptr ? "cuda:1" : "cuda:0";
}

std::unique_ptr<Transport> Make(const std::string& transport, int gpu) {
  KvTransferOptions options;
  options.dma = Gpu(gpu)->dma();
  options.transport.listen_address = "127.0.0.1:0";
  options.transport.fence_timeout = std::chrono::milliseconds(200);
  return *MakeTransport(transport, options);
}

// Whether two GPUs and NCCL are here; prints what is missing.
bool HasNccl() {
  if (Gpu(0) == nullptr) return false;
  if (Gpu(1) == nullptr) {
    std::printf("no second GPU: the KV transport nccl was NOT tested\n");
    return false;
  }
  const auto pairs = Gpu(0)->dma()->Pairs();
  if (!pairs.ok()) {
    std::printf("the KV transport nccl was NOT tested: %s\n",
                std::string(Message(pairs.status())).c_str());
  }
  return pairs.ok();
}

std::vector<TransportUnderTest> Transports() {
  std::vector<TransportUnderTest> all;
  if (Gpu(0) == nullptr) return all;
  for (const std::string name : {"cuda_ipc", "tcp", "nccl"}) {
    const auto make = [name] { return Make(name, 0); };
    const auto device = []() -> Device& { return Gpu(0)->device(); };
    if (name == "nccl" && !HasNccl()) continue;
    // NCCL has no two ranks on one GPU.
    if (name != "nccl") all.push_back({name, make, device});
    if (Gpu(1) == nullptr) continue;
    all.push_back({name + "_peer",
                   make,
                   device,
                   [name] { return Make(name, 1); },
                   []() -> Device& { return Gpu(1)->device(); }});
  }
  return all;
}

std::vector<ProcessFault> Faults() {
  std::vector<ProcessFault> all;
  if (Gpu(0) == nullptr) return all;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    all.push_back({{"cuda_ipc", "cuda:0"}, LastDevice(), signal, true});
    if (HasNccl()) all.push_back({{"nccl", "cuda:0"}, LastDevice(), signal});
  }
  return all;
}

std::vector<ProcessFault> Stops() {
  if (Gpu(0) == nullptr) return {};
  return {{{"cuda_ipc", "cuda:0"}, LastDevice(), SIGSTOP, true}};
}

INSTANTIATE_TEST_SUITE_P(Gpu,
                         TransportConformance,
                         testing::ValuesIn(Transports()),
                         [](const auto& param) { return param.param.name; });
INSTANTIATE_TEST_SUITE_P(Gpu,
                         ProcessFaultTest,
                         testing::ValuesIn(Faults()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Gpu,
                         StoppedSenderTest,
                         testing::ValuesIn(Stops()),
                         testing::PrintToStringParamName());

class GpuHandoffTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Gpu(0) == nullptr) GTEST_SKIP() << "no GPU: KV hand-offs were NOT tested";
    options_ = HandoffPair::Options::OverCudaIpc(Gpu(0)->device(), *Gpu(0)->dma());
  }
  void ExpectHandoff() {
    HandoffPair pair(options_);
    std::vector<BlockId> source;
    for (uint32_t i = 0; i < 10; ++i) source.push_back(BlockId(i * 3));
    pair.Send(SessionId(1), source, 4, "x");
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
    EXPECT_TRUE(pair.received().Get(SessionId(1)).committed)
        << pair.received().Get(SessionId(1)).status;
    EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
  }
  HandoffPair::Options options_;
};

TEST_F(GpuHandoffTest, OfWholeBlocks) {
  options_.layout =
      DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
  ExpectHandoff();
}

// Granules are not contiguous, so the checksum task gathers them.
TEST_F(GpuHandoffTest, BetweenUnequalShards) {
  options_.layout =
      DenseLayout({.layers = 6, .kv_heads = 8, .head_dim = 64, .dtype = DType::kBF16});
  options_.sender_shards = {{0, 6, 0, 4}, {0, 6, 4, 4}};
  options_.receiver_shards = {{0, 3, 0, 8}, {3, 3, 0, 8}};
  ExpectHandoff();
}

TEST_F(GpuHandoffTest, OfOtherPlanes) {
  options_.layout = ScaledFp8Layout(8, 4, 128);
  ExpectHandoff();
  options_.layout = LatentLayout(16, 576);
  ExpectHandoff();
}

// Granules are too small for the checksum kernel.
TEST_F(GpuHandoffTest, OfTinyBlocks) {
  options_.layout = DenseLayout({.layers = 1, .kv_heads = 1, .head_dim = 8, .block_tokens = 4});
  ExpectHandoff();
}

}  // namespace
}  // namespace baton
