// PNG files; see png_write.h.
#include "png_write.h"

#include <stdexcept>

#ifdef WEIR_HAVE_PNG
#include <png.h>
#endif

namespace weir_cli {

#ifdef WEIR_HAVE_PNG

bool can_write_png() { return true; }

void write_png(const std::string& path, uint32_t width, uint32_t height, const std::vector<uint8_t>& rgb) {
  if (rgb.size() != size_t{width} * height * 3)
    throw std::runtime_error(path + ": width and height do not fit the pixels");
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, path.c_str(), 0, rgb.data(), 0, nullptr) == 0) {
    throw std::runtime_error(path + ": cannot write the picture: " + image.message);
  }
}

#else

bool can_write_png() { return false; }

void write_png(const std::string& path, uint32_t, uint32_t, const std::vector<uint8_t>&) {
  throw std::runtime_error(path + ": this build has no libpng, so it cannot write the picture");
}

#endif

}  // namespace weir_cli
