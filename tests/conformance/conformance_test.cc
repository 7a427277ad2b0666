#include <chrono>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kvtransfer/data_plane/make_transport.h"
#include "tests/conformance/memory_transport.h"
#include "tests/conformance/transport_conformance.h"
#include "tests/fakes/fake_gpu.h"

namespace baton {
namespace {

TransportUnderTest Real(const std::string& name) {
  return {name,
          [name] {
            KvTransferOptions options;
            options.transport.listen_address = "127.0.0.1:0";
            return *MakeTransport(name, options);
          },
          HostDevice};
}

FakeGpu& Gpu() {
  static FakeGpu gpu;
  return gpu;
}

// Moves a GPU's memory.
TransportUnderTest OnGpu(const std::string& name) {
  return {name + "_gpu",
          [name] {
            KvTransferOptions options;
            options.dma = &Gpu();
            options.transport.listen_address = "127.0.0.1:0";
            options.transport.fence_timeout = std::chrono::milliseconds(200);
            return *MakeTransport(name, options);
          },
          []() -> Device& { return Gpu(); }};
}

TransportUnderTest Reference() {
  // One fabric per process is enough, because endpoints have unique names.
  static MemoryFabric fabric;
  return {"memory", [] { return fabric.MakeTransport(); }, HostDevice};
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         TransportConformance,
                         testing::Values(Real("shm"),
                                         Real("tcp"),
                                         OnGpu("cuda_ipc"),
                                         OnGpu("tcp"),
                                         OnGpu("nccl"),
                                         Reference()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace baton
