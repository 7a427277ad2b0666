#pragma once

#include "kernels/graph/step_graph.h"

namespace baton::graph {

// Adds the exchanges of tensor ranks to a graph that states what a rank computes of each value
// (Share). A value is exchanged right after the op that writes it, if an op reads all of it. Each
// KvWrittenOp moves behind the next exchange, because the other ranks then have written the KV,
// too; where none follows, behind a barrier.
void PlaceExchanges(StepGraph& graph);

}  // namespace baton::graph
