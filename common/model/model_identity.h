#pragma once

#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/model/open_model.h"

namespace baton {

// The hashes that identify a model (fingerprint.h). Workers and routers of a cluster compare them.
struct ModelIdentity {
  Hash128 shape;        // hash of the spec
  Hash128 tokenizer;    // zero when there are no readable tokenizer files
  Hash128 fingerprint;  // hash of spec and weights; zero when there are no readable weight files
};

// The hash of the tokenizer of the model at `path`; zero when it has no readable tokenizer.
Hash128 TokenizerHashAt(const std::string& path);

// Identifies the model at `path`, which is opened like OpenModel does. Weight files may be missing
// or damaged. Errors: those of LoadModelSpec.
StatusOr<ModelIdentity> IdentifyModel(const std::string& path, const OpenOptions& options);

}  // namespace baton
