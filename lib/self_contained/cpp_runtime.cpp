// What a library with a C++ runtime of its own does differently from one that shares the process's: its exceptions
// are its own affair, those of callbacks are the application's. Definitions here stand for the ones in libstdc++.a, or
// are called in their place (--wrap, cmake/WeirSelfContained.cmake).
#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <cstdlib>
#include <exception>

#include "core/callback.h"

// Where std::terminate ends: without words, which libstdc++'s own handler prints, and without its demangler. C++ has no
// other end for it. Weir does not get there: what it throws is caught in each call of the API (core/call.h), what
// callbacks throw in call_outside() (core/callback.h), and abi/forbidden_calls looks at all other ways.
namespace __cxxabiv1 {
extern std::terminate_handler __terminate_handler;
std::terminate_handler __terminate_handler = std::abort;
}  // namespace __cxxabiv1

// What is in a table of virtual functions in the place of one without a body. GCC refers to it weakly, so that the
// linker would not take it from an archive. Nothing calls it.
extern "C" void __cxa_pure_virtual();
extern "C" void __cxa_pure_virtual() { __cxxabiv1::__terminate_handler(); }

// libstdc++ keeps memory for exceptions that are thrown when there is no memory. A shared one keeps it for the
// process; this one goes with the library.
namespace __gnu_cxx {
void __freeres();
}
__attribute__((destructor)) static void free_exception_memory() { __gnu_cxx::__freeres(); }

// --- exceptions of callbacks ---
//
// An exception belongs to the runtime that threw it: its unwinder's state means nothing to the functions of another
// unwinder that has the same names, and its count of uncaught exceptions goes down only in its own __cxa_begin_catch.
// So the tables of our frames are read for our exceptions alone. One that comes out of a callback is ended by its own
// runtime, as soon as all frames of the application have been cleaned up, and the call of the callback goes on.
namespace {

using Cleanup = void (*)(_Unwind_Reason_Code, _Unwind_Exception*);

// What frees the exceptions of this runtime, which thereby are known. Set before the first of them is under way.
std::atomic<Cleanup> our_cleanup{nullptr};

_Unwind_Reason_Code stop(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

// The unwinder makes its tables when it is first used for a throw or a trace, not for a personality routine, which a
// backend module may see first for an exception of the library.
__attribute__((constructor)) void prepare_unwinder() { (void)_Unwind_Backtrace(stop, nullptr); }

// The function of that name in the file that `address` belongs to.
template <class Function>
Function function_beside(const void* address, const char* name) {
  Dl_info there = {}, found = {};
  if (dladdr(address, &there) == 0) return nullptr;
  void* file = dlopen(there.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (file == nullptr) return nullptr;
  void* function = dlsym(file, name);
  (void)dlclose(file);
  if (function == nullptr || dladdr(function, &found) == 0 || found.dli_fbase != there.dli_fbase) return nullptr;
  return reinterpret_cast<Function>(function);
}

// As a handler does that catches everything. A runtime that does not export its functions frees the exception, but goes
// on counting it.
void end(_Unwind_Exception* exception) {
  if (exception->exception_cleanup == nullptr) return;
  const auto* runtime = reinterpret_cast<const void*>(exception->exception_cleanup);
  const auto begin_catch = function_beside<void* (*)(void*)>(runtime, "__cxa_begin_catch");
  const auto end_catch = function_beside<void (*)()>(runtime, "__cxa_end_catch");
  if (begin_catch != nullptr && end_catch != nullptr) {
    (void)begin_catch(exception);
    end_catch();
  } else {
    exception->exception_cleanup(_URC_FOREIGN_EXCEPTION_CAUGHT, exception);
  }
}

}  // namespace

extern "C" {

_Unwind_Reason_Code __real__Unwind_RaiseException(_Unwind_Exception* exception);
_Unwind_Reason_Code __wrap__Unwind_RaiseException(_Unwind_Exception* exception);
_Unwind_Reason_Code __wrap__Unwind_RaiseException(_Unwind_Exception* exception) {
  our_cleanup.store(exception->exception_cleanup, std::memory_order_relaxed);
  return __real__Unwind_RaiseException(exception);
}

// What an unwinder asks about each of our frames: first whether one of them handles the exception, then to clean up or
// to go on there.
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context);
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context);
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context) {
  weir::RunningCallback* callback = weir::RunningCallback::innermost();
  if (callback == nullptr || exception->exception_cleanup == our_cleanup.load(std::memory_order_relaxed)) {
    return __real___gxx_personality_v0(version, actions, kind, exception, context);
  }
  if ((actions & _UA_SEARCH_PHASE) != 0) return _URC_HANDLER_FOUND;
  // Threads do not end in callbacks (weir/base.h). What ends one cannot be caught, and says so.
  if ((actions & (_UA_HANDLER_FRAME | _UA_FORCE_UNWIND)) == 0) return _URC_CONTINUE_UNWIND;
  end(exception);
  std::longjmp(callback->back, 1);
}

// Hooks that Zstandard calls where a program defines them. A program that does means its own Zstandard, not this one.
// A trace that begins with 0 is none, so the other two are not called.
unsigned long long ZSTD_trace_compress_begin(const void*) { return 0; }
unsigned long long ZSTD_trace_decompress_begin(const void*) { return 0; }
void ZSTD_trace_compress_end(unsigned long long, const void*) {}
void ZSTD_trace_decompress_end(unsigned long long, const void*) {}
}
