// A picture of stored results of weir bench: tokens a second against depth, a line for each policy.
#pragma once

#include <istream>
#include <string>

namespace weir_cli {

// SVG of the JSON lines that are of `shape`, a panel for each weight type that has more than one depth. Throws
// std::runtime_error when a line is no result, or none matches.
std::string bench_plot_svg(std::istream& lines, const std::string& shape);

}  // namespace weir_cli
