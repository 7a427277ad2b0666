#pragma once

#include <string_view>

namespace baton {

// Baton's version, from the latest tag v* of the checkout, else as stated by project() in
// CMakeLists.txt. Between two tags it names the commit, and "dirty" says that files differ from the
// commit: "0.1.0+g1a2b3c4", "0.2.0+5.g1a2b3c4.dirty". A build without git has "0.1.0". Each build
// writes the source of this function anew (cmake/WriteVersion.cmake).
std::string_view Version();

}  // namespace baton
