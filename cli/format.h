#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

std::string FormatMillis(double milliseconds);  // "0.42 ms", "37.1 ms", "12.3 s"
std::string FormatBytes(uint64_t bytes);        // "512 B", "1.1 MB" (10⁶)
std::string FormatDuration(double seconds);     // "42 s", "3 min", "5.2 h"

// Columns aligned with two spaces between; the first row is the head.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace baton
