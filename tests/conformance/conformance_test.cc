#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kvtransfer/make_transport.h"
#include "tests/conformance/memory_transport.h"
#include "tests/conformance/transport_conformance.h"

namespace baton {
namespace {

TransportUnderTest Real(const std::string& name) {
  return {name, [name] {
            KvTransferOptions options;
            options.transport.listen_address = "127.0.0.1:0";
            return *MakeTransport(name, options);
          }};
}

TransportUnderTest Reference() {
  // One fabric a process is enough: endpoints have names of their own.
  static MemoryFabric fabric;
  return {"memory", [] { return fabric.MakeTransport(); }};
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         TransportConformance,
                         testing::Values(Real("shm"), Real("tcp"), Reference()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace baton
