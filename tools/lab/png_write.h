// PNG files, by libpng. A build without libpng can do everything but this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir_cli {

bool can_write_png();

// rgb: [height, width, 3]. Throws std::runtime_error naming the file; also in a build without libpng.
void write_png(const std::string& path, uint32_t width, uint32_t height, const std::vector<uint8_t>& rgb);

}  // namespace weir_cli
