#pragma once

namespace baton {

// Adds server reflection, version 1 (proto/reflection.proto), to every server that this process
// starts from now on. To be called once, before the first server. gRPC's own library has only
// v1alpha.
void EnableReflection();

}  // namespace baton
