// The replies of /v1/responses, in its text form.
#pragma once

#include <memory>

#include "server/answer.h"

namespace weir_server {

HttpReply reply_to_response(std::shared_ptr<Answer> answer);

}  // namespace weir_server
