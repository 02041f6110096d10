// A session's conversation as bytes, and back, for tests in C++.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "api_test.h"

namespace saved_bytes {

using File = std::vector<uint8_t>;

// `session`: anything that points to one.
template <class Session>
File saved(const Session& session) {
  File file;
  const weir_write_fn add = [](void* user, const weir_write_info* info) -> weir_status {
    const auto* data = static_cast<const uint8_t*>(info->data);
    static_cast<File*>(user)->insert(static_cast<File*>(user)->end(), data, data + info->n_bytes);
    return WEIR_OK;
  };
  assert_ok(weir_session_save(&*session, add, &file));
  return file;
}

template <class Session>
weir_status try_restore(const Session& session, const File& file) {
  const weir_read_fn give = [](void* user, const weir_read_info* info, uint64_t* n_read) -> weir_status {
    const auto& bytes = *static_cast<const File*>(user);
    *n_read = std::min<uint64_t>(info->n_bytes, bytes.size() - info->offset);
    if (*n_read != 0) std::memcpy(info->data, bytes.data() + info->offset, *n_read);
    return WEIR_OK;
  };
  return weir_session_restore(&*session, give, const_cast<File*>(&file));
}

}  // namespace saved_bytes
