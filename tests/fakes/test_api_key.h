#pragma once

#include <string>

#include "common/security/api_keys.h"
#include "common/security/digest.h"

namespace baton {

// The record of the client `name`, whose key is key-NAME and whose tenant is of-NAME.
inline ApiKey TestApiKey(const std::string& name) {
  ApiKey key;
  key.name = name;
  key.tenant = "of-" + name;
  key.digest = Sha256("key-" + name);
  return key;
}

}  // namespace baton
