// On imaginary devices, which count their queue pairs and memory regions.

#include "kvtransfer/verbs/verbs_transport.h"
#include "tests/fakes/loopback_verbs.h"
#include "tests/unit/kvtransfer/handoff_soak.h"

namespace baton {
namespace {

SoakTransport Verbs() {
  const auto make = [](std::string_view) {
    TransportOptions options;
    options.boot = BootId(1);  // the sender's, as in its HELLO
    options.listen_address = "127.0.0.1:0";
    options.verbs.devices = {"loop0", "loop1"};
    return VerbsTransport::Create(&LoopbackVerbs(), options, nullptr, {}, {});
  };
  const auto objects = [] {
    const LoopbackObjects all = CountLoopbackObjects();
    return std::vector{all.queue_pairs, all.memory_regions};
  };
  return {"verbs", make, objects};
}

INSTANTIATE_TEST_SUITE_P(Verbs, SoakTest, testing::Values(Verbs()), [](const auto& param) {
  return param.param.name;
});

}  // namespace
}  // namespace baton
