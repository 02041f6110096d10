// The replies of /v1/completions.
#pragma once

#include <memory>

#include "server/answer.h"

namespace weir_server {

HttpReply reply_to_completion(std::shared_ptr<Answer> answer);

}  // namespace weir_server
