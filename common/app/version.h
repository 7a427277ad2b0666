#pragma once

#include <string_view>

namespace baton {

// Baton's version, as stated by project() in CMakeLists.txt: "0.1.0".
std::string_view Version();

}  // namespace baton
