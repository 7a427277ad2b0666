// What a hand-off over verbs costs without the network: the RDMA devices are imaginary, and their
// writes are copies within this process. Beside it the same hand-off over shm and tcp.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "common/base/check.h"
#include "kvtransfer/verbs/verbs_transport.h"
#include "kvtransfer/verbs/write_queue.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/loopback_verbs.h"

namespace baton {
namespace {

// From the offer of one block of 4 KiB to the end of its session at the sender. Both ends are
// threads of this process, and control messages are calls.
void HandOffOneBlock(benchmark::State& state, const std::string& transport) {
  HandoffPair::Options options;
  options.transport = transport;
  options.layout = DenseLayout({.layers = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::kF16});
  if (transport == "verbs") {
    options.make_transport = [](std::string_view) {
      TransportOptions verbs;
      verbs.listen_address = "127.0.0.1:0";
      verbs.verbs.devices = {"loop0"};
      return VerbsTransport::Create(&LoopbackVerbs(), verbs, nullptr, {}, {});
    };
  }
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 1);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 0, source);
  };
  uint64_t session = 0;
  while (state.KeepRunning()) {
    const SessionId id(++session);
    pair.Send(id, source, 1, "t");
    BATON_CHECK(pair.sent().WaitEnd(id), "hand-off {} does not end", id);
  }
}
BENCHMARK_CAPTURE(HandOffOneBlock, verbs, "verbs")->UseRealTime();
BENCHMARK_CAPTURE(HandOffOneBlock, shm, "shm")->UseRealTime();
BENCHMARK_CAPTURE(HandOffOneBlock, tcp, "tcp")->UseRealTime();

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
