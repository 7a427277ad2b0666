#include "tests/unit/kvtransfer/handoff_soak.h"

namespace baton {
namespace {

INSTANTIATE_TEST_SUITE_P(Transports,
                         SoakTest,
                         testing::Values(SoakTransport{"shm", {}, {}},
                                         SoakTransport{"tcp", {}, {}}),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace baton
