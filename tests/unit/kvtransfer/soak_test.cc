#include "tests/unit/kvtransfer/handoff_soak.h"

namespace baton {
namespace {

INSTANTIATE_TEST_SUITE_P(Transports,
                         SoakTest,
                         testing::Values(SoakTransport{"shm", {}, {}},
                                         SoakTransport{"tcp", {}, {}},
                                         SoakTransport{"shm", {}, {}, /*states=*/true},
                                         SoakTransport{"tcp", {}, {}, /*states=*/true}),
                         [](const auto& param) {
                           return param.param.name + (param.param.states ? "_states" : "");
                         });

}  // namespace
}  // namespace baton
