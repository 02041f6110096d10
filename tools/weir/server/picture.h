// The pages of a session as the page shows them.
#pragma once

#include <weir/weir.h>

#include <cstddef>
#include <string>

namespace weir_server {

// A character for each page, as of one stream: '#' in the pool, '*' there since the last state, '.' in host memory, 'x'
// lost. In the pool are as many as a stream holds on average, those that the most streams have there. `max_pages`:
// there are no more; `before`: the characters of the last state.
std::string picture_of(weir_session* session, size_t max_pages, const std::string& before);

}  // namespace weir_server
