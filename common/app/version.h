#pragma once

#include <string_view>

namespace baton {

// Baton's version, as CMakeLists.txt's project() states it: "0.1.0".
std::string_view Version();

}  // namespace baton
