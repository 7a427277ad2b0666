#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/gpu/test_device.h"
#include "tests/unit/engine/decoder_engine_fixture.h"

// Runs decoder_bits_test.cc, which holds for every device, on a GPU in deterministic mode.
namespace baton {
namespace {

class GpuEngineDevice final : public EngineDevice {
 public:
  GpuEngineDevice(std::unique_ptr<cuda::CudaDevice> device, std::unique_ptr<Ops> ops)
      : device_(std::move(device)), ops_(std::move(ops)) {}
  Ops& ops() override { return *ops_; }
  HarnessOptions options() const override {
    HarnessOptions options;
    options.kv.dtype = DType::kBF16;
    // A row of a chunk has other bits than a row alone.
    options.repeat_output_singly = true;
    return options;
  }

 private:
  std::unique_ptr<cuda::CudaDevice> device_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

StatusOr<std::unique_ptr<EngineDevice>> EngineDevice::Open() {
  BATON_ASSIGN_OR_RETURN(auto device, cuda::CudaDevice::Open(0));
  BATON_ASSIGN_OR_RETURN(
      auto ops, MakeCudaOps(*device, cuda::TestedOptions({.deterministic = true, .graphs = true})));
  return std::make_unique<GpuEngineDevice>(std::move(device), std::move(ops));
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DecoderEngineTest,
                         ::testing::Values("llama_gqa",
                                           "gpt_oss",
                                           "gemma3_text",
                                           "deepseek_v3",
                                           "qwen3_moe",
                                           "qwen3_5_moe_text",
                                           "kimi_linear",
                                           "falcon_h1",
                                           "jamba",
                                           "nemotron_h"));

}  // namespace baton
