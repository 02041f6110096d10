// The op attn_stamp: attn_paged and page_stamp of a decode step.
#pragma once

#include "ops/attn_paged.h"
#include "ops/page_stamp.h"

namespace weir {

// attn_paged of one query row over all resident pages, followed by page_stamp with its masses: the attention of a
// decode step of a policy that stamps by exact masses.
struct AttnStampArgs {
  AttnPagedArgs attn;   // n_tok is 1, select is null, page_mass is not
  PageStampArgs stamp;  // weight is attn.page_mass, select is null; its tables are those of attn.kv
};

}  // namespace weir
