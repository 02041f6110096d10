// PNG files; see png_write.h.
#include "png_write.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "out_file.h"

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
  char* bytes = nullptr;
  size_t n_bytes = 0;
  std::FILE* memory = ::open_memstream(&bytes, &n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const bool made = png_image_write_to_stdio(&image, memory, 0, rgb.data(), 0, nullptr) != 0;
  const bool kept = std::fclose(memory) == 0;
  const std::unique_ptr<char, decltype(&std::free)> owner(bytes, std::free);
  if (!made) throw std::runtime_error(path + ": cannot make the picture: " + image.message);
  if (!kept) throw std::bad_alloc();
  write_text_file(path, {bytes, n_bytes});
}

#else

bool can_write_png() { return false; }

void write_png(const std::string& path, uint32_t, uint32_t, const std::vector<uint8_t>&) {
  throw std::runtime_error(path + ": this build has no libpng, so it cannot write the picture");
}

#endif

}  // namespace weir_cli
