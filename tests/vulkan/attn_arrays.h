// A case of attention in device memory.
#pragma once

#include "tests/ops/attn_case.h"
#include "tests/vulkan/device_arrays.h"

namespace weir::test {

// `a` of the case with the case's arrays on the device. Results come back with finish().
inline AttnPagedArgs on_device(DeviceArrays& m, AttnCase& c, AttnPagedArgs a) {
  const size_t rows = size_t{a.kv.n_kv_heads} * a.kv.capacity;
  a.kv.pool = m.in(c.kv.pool());
  a.kv.slots = m.in(a.kv.slots, rows);
  a.kv.first_pos = m.in(a.kv.first_pos, rows);
  a.kv.len = m.in(a.kv.len, rows);
  a.kv.n_pages = m.in(a.kv.n_pages, a.kv.n_kv_heads);
  a.q = m.in(c.q);
  if (a.q_sink != nullptr) a.q_sink = m.in(c.q_sink);
  if (a.sinks != nullptr) a.sinks = m.in(c.sinks);
  if (a.head_windows != nullptr) a.head_windows = m.in(a.head_windows, a.kv.n_kv_heads);
  if (a.page_mass != nullptr) a.page_mass = m.both(c.mass);
  if (a.lse != nullptr) a.lse = m.both(c.lse);
  a.out = m.both(c.out);
  return a;
}
inline AttnPagedArgs on_device(DeviceArrays& m, AttnCase& c) { return on_device(m, c, c.args()); }

}  // namespace weir::test
