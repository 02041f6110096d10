// Filters of single values, for the table in filters.cpp.
#pragma once

#include "text/jinja/run.h"

namespace weir::jinja {

inline bool flag(const Args& args, size_t i, bool otherwise) { return args.has(i) ? is_true(args[i]) : otherwise; }
int64_t whole(Run& run, const Args& args, size_t i, int64_t otherwise);

Value f_abs(Run& run, const Value& self, const Args& args);
Value f_capitalize(Run& run, const Value& self, const Args& args);
Value f_center(Run& run, const Value& self, const Args& args);
Value f_default(Run& run, const Value& self, const Args& args);
Value f_escape(Run& run, const Value& self, const Args& args);
Value f_float(Run& run, const Value& self, const Args& args);
Value f_format(Run& run, const Value& self, const Args& args);
Value f_indent(Run& run, const Value& self, const Args& args);
Value f_int(Run& run, const Value& self, const Args& args);
Value f_lower(Run& run, const Value& self, const Args& args);
Value f_replace(Run& run, const Value& self, const Args& args);
Value f_round(Run& run, const Value& self, const Args& args);
Value f_safe(Run& run, const Value& self, const Args& args);
Value f_string(Run& run, const Value& self, const Args& args);
Value f_title(Run& run, const Value& self, const Args& args);
Value f_tojson(Run& run, const Value& self, const Args& args);
Value f_trim(Run& run, const Value& self, const Args& args);
Value f_truncate(Run& run, const Value& self, const Args& args);
Value f_upper(Run& run, const Value& self, const Args& args);
Value f_urlencode(Run& run, const Value& self, const Args& args);
Value f_wordcount(Run& run, const Value& self, const Args& args);

}  // namespace weir::jinja
