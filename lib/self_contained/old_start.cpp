// How a program starts with a glibc of before 2.34: there the program runs the constructors of its own, which newer
// versions do for it. Called in place of __libc_start_main (--wrap, cmake/WeirSelfContained.cmake).
extern "C" {

using Main = int (*)(int, char**, char**);
using Init = void (*)(int, char**, char**);
int weir_old_start(Main main, int count, char** words, Init init, void (*fini)(), void (*end)(), void* stack_end);
asm(".symver weir_old_start, __libc_start_main@GLIBC_2.2.5");

// The linker and the compiler's start files define these.
__attribute__((visibility("hidden"))) extern Init __init_array_start[];
__attribute__((visibility("hidden"))) extern Init __init_array_end[];
__attribute__((visibility("hidden"))) void _init();

static void run_constructors(int count, char** words, char** environment) {
  _init();
  for (Init* i = __init_array_start; i != __init_array_end; ++i) (*i)(count, words, environment);
}

int __wrap___libc_start_main(Main main, int count, char** words, Init init, void (*fini)(), void (*end)(),
                             void* stack_end);
int __wrap___libc_start_main(Main main, int count, char** words, Init init, void (*fini)(), void (*end)(),
                             void* stack_end) {
  return weir_old_start(main, count, words, init != nullptr ? init : run_constructors, fini, end, stack_end);
}
}
