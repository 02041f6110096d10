// Fuzzes lib/text/constraint: compiling any grammar in llama.cpp's format, and following any text through it. Input:
// the grammar, a NUL byte, then the text.
#include "fuzz_constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir_fuzz::run(weir::constraint::compile_gbnf, {reinterpret_cast<const char*>(data), size});
  return 0;
}
