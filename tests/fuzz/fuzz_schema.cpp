// Fuzzes lib/text/constraint: compiling any JSON schema, and following any text through it. Input: the schema, a NUL
// byte, then the text.
#include "fuzz_constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir_fuzz::run(weir::constraint::compile_schema, {reinterpret_cast<const char*>(data), size});
  weir_fuzz::run(weir::constraint::compile_tools, {reinterpret_cast<const char*>(data), size});
  return 0;
}
