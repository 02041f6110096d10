// Functions of glibc by their oldest names, so that a library that was linked with a new glibc runs with one from 2.28
// on. cmake/WeirSelfContained.cmake has the linker send every call of the functions that begin a line here to
// __wrap_NAME (--wrap), also those of the archives that are linked in. A function that nothing calls is dropped.
//
// Before 2.34 some of them are in libpthread.so.0 and libdl.so.2. The library asks for both as it can do without them
// (DT_AUXILIARY): they are loaded where they exist, and need not be named by whoever links a program with it. For that
// the references are weak.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include <cmath>

#define OLD_FUNCTION(name, result, parameters, arguments)             \
  extern "C" __attribute__((weak)) result weir_old_##name parameters; \
  asm(".symver weir_old_" #name ", " #name "@GLIBC_2.2.5");           \
  extern "C" result __wrap_##name parameters;                         \
  extern "C" result __wrap_##name parameters { return weir_old_##name arguments; }

// clang-format off
// 2.29 gave them names without the error handling of System V.
OLD_FUNCTION(exp, double, (double x), (x))
OLD_FUNCTION(log, double, (double x), (x))
OLD_FUNCTION(pow, double, (double x, double y), (x, y))
// 2.34 made libpthread and libdl parts of libc, pthread_sigmask 2.32.
OLD_FUNCTION(pthread_create, int, (pthread_t* thread, const pthread_attr_t* how, void* (*start)(void*), void* user),
             (thread, how, start, user))
OLD_FUNCTION(pthread_join, int, (pthread_t thread, void** result), (thread, result))
OLD_FUNCTION(pthread_once, int, (pthread_once_t* once, void (*start)()), (once, start))
OLD_FUNCTION(pthread_sigmask, int, (int how, const sigset_t* signals, sigset_t* old), (how, signals, old))
OLD_FUNCTION(pthread_detach, int, (pthread_t thread), (thread))
OLD_FUNCTION(pthread_key_create, int, (pthread_key_t* key, void (*end)(void*)), (key, end))
OLD_FUNCTION(__pthread_key_create, int, (pthread_key_t* key, void (*end)(void*)), (key, end))
OLD_FUNCTION(pthread_key_delete, int, (pthread_key_t key), (key))
OLD_FUNCTION(pthread_getspecific, void*, (pthread_key_t key), (key))
OLD_FUNCTION(pthread_setspecific, int, (pthread_key_t key, const void* value), (key, value))
OLD_FUNCTION(dlopen, void*, (const char* file, int mode), (file, mode))
OLD_FUNCTION(dlclose, int, (void* handle), (handle))
OLD_FUNCTION(dlerror, char*, (), ())
OLD_FUNCTION(dlsym, void*, (void* handle, const char* name), (handle, name))
OLD_FUNCTION(dladdr, int, (const void* address, Dl_info* info), (address, info))
// clang-format on

// 2.33 made functions of what had been inline functions over these. The first argument is the layout of struct stat.
#define OLD_STAT(name, old_name, type, parameter)                        \
  extern "C" int old_name(int layout, type parameter, struct stat* out); \
  extern "C" int __wrap_##name(type parameter, struct stat* out);        \
  extern "C" int __wrap_##name(type parameter, struct stat* out) { return old_name(1, parameter, out); }
OLD_STAT(stat, __xstat, const char*, path)
OLD_STAT(lstat, __lxstat, const char*, path)
OLD_STAT(fstat, __fxstat, int, file)
