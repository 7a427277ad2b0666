#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

std::string FormatMillis(double milliseconds);  // "0.42 ms", "37.1 ms", "12.3 s"
std::string FormatBytes(uint64_t bytes);        // "512 B", "1.1 MB" (10⁶)
std::string FormatDuration(double seconds);     // "42 s", "3 min", "5.2 h"

// Aligns columns with two spaces between them. The first row is the header.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace baton
