// The conformance suite over verbs, on the soft-RoCE devices of the guest: rxe0 writes to rxe1 over
// a pair of virtual Ethernet devices, rxe2 to rxe3 over another pair.

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/data_plane/make_transport.h"
#include "tests/conformance/process_fault.h"
#include "tests/conformance/state_fault.h"
#include "tests/conformance/transport_conformance.h"

namespace baton {
namespace {

std::unique_ptr<Transport> OnDevices(std::vector<std::string> devices) {
  KvTransferOptions options;
  options.transport.listen_address = "127.0.0.1:0";
  options.transport.fence_timeout = std::chrono::milliseconds(500);
  options.transport.verbs.devices = std::move(devices);
  return *MakeTransport("verbs", options);
}

TransportUnderTest OneRail() {
  return {"verbs",
          [] { return OnDevices({"rxe0"}); },
          HostDevice,
          [] { return OnDevices({"rxe1"}); },
          HostDevice};
}

TransportUnderTest TwoRails() {
  return {"verbs_two_rails",
          [] {
            return OnDevices({"rxe0", "rxe2"});
          },
          HostDevice,
          [] {
            return OnDevices({"rxe1", "rxe3"});
          },
          HostDevice};
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         TransportConformance,
                         testing::Values(OneRail(), TwoRails()),
                         [](const auto& param) { return param.param.name; });

// A stopped sender can be fenced without its help: its queue pairs are destroyed.
INSTANTIATE_TEST_SUITE_P(Faults,
                         ProcessFaultTest,
                         testing::Values(ProcessFault{{"verbs", "cpu"}, "cpu", SIGKILL},
                                         ProcessFault{{"verbs", "cpu"}, "cpu", SIGSTOP}),
                         testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(States,
                         StateFaultTest,
                         testing::ValuesIn(StateFaults("verbs")),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace baton
