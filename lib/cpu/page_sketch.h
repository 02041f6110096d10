// Estimates of pages from sketches on the CPU; ops/sketch.h has what a sketch is.
#pragma once

#include "ops/page_score.h"
#include "ops/sketch.h"
#include "ops/table.h"

namespace weir::cpu {

uint64_t page_sketch_scratch_bytes(const OpShapes& shapes);

// The queries of all heads, in scratch memory; null: there is too little.
const SketchQuery* sketch_queries(OpContext& cx, const PageScoreArgs& a);

// Scores rows [begin, end) of one KV head's table, all of which have sketches.
void score_sketches(const PageScoreArgs& a, const SketchQuery* queries, uint32_t kv_head, uint32_t begin, uint32_t end);

}  // namespace weir::cpu
