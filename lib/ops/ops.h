// The arguments of all operations, and the table: for tests, which call every op. The library includes the headers of
// the ops that a file is about, so that a change of one op's arguments compiles little.
#pragma once

#include "ops/attn_history.h"
#include "ops/attn_paged.h"
#include "ops/attn_progressive.h"
#include "ops/attn_stamp.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/glu_matmul.h"
#include "ops/history_begin.h"
#include "ops/matmul.h"
#include "ops/page_accumulate.h"
#include "ops/page_digest.h"
#include "ops/page_score.h"
#include "ops/page_select.h"
#include "ops/page_stamp.h"
#include "ops/rms_norm.h"
#include "ops/rope_append.h"
#include "ops/soft_cap.h"
#include "ops/table.h"
#include "ops/token_mass.h"
#include "ops/types.h"
