// The files of the page, as they are in tools/weir/server/page; a source that CMake makes has their bytes.
#pragma once

#include <cstddef>

namespace weir_server {

struct PageFile {
  const char* path;  // "/", "/app.css"
  const char* type;
  const unsigned char* bytes;
  size_t n_bytes;
};
extern const PageFile kPageFiles[];
extern const size_t kPageFileCount;

}  // namespace weir_server
