// Thread-local state of public calls.
#include "core/call.h"

#include <pthread.h>

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weir {
namespace {

thread_local Call* g_call = nullptr;  // the innermost call that the thread is in; null outside and in callbacks
thread_local char g_error[kErrorBytes];

}  // namespace

#if defined(__x86_64__)

namespace {

constexpr uint32_t kDefaultMxcsr = 0x1F80;
constexpr uint16_t kDefaultX87 = 0x037F;

uint16_t x87_control() {
  uint16_t control;
  __asm__ __volatile__("fnstcw %0" : "=m"(control));
  return control;
}

}  // namespace

void FloatEnvironment::save() {
  mxcsr_ = _mm_getcsr();
  x87_control_ = x87_control();
  // fnstenv also masks all traps, so that no pending one can strike before the environment is restored.
  if (x87_control_ != kDefaultX87) __asm__ __volatile__("fnstenv %0" : "=m"(x87_));
}

void FloatEnvironment::restore() const {
  _mm_setcsr(mxcsr_);
  if (x87_control_ != kDefaultX87) __asm__ __volatile__("fldenv %0" : : "m"(x87_));
}

void FloatEnvironment::set_default() {
  _mm_setcsr(kDefaultMxcsr);
  if (x87_control() != kDefaultX87) __asm__ __volatile__("fldcw %0" : : "m"(kDefaultX87));
}

#elif defined(__aarch64__)

void FloatEnvironment::save() {
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(control_));
  __asm__ __volatile__("mrs %0, fpsr" : "=r"(status_));
}

void FloatEnvironment::restore() const {
  __asm__ __volatile__("msr fpcr, %0" : : "r"(control_));
  __asm__ __volatile__("msr fpsr, %0" : : "r"(status_));
}

void FloatEnvironment::set_default() { __asm__ __volatile__("msr fpcr, %0" : : "r"(uint64_t{0})); }

#else

void FloatEnvironment::save() { (void)std::fegetenv(&environment_); }
void FloatEnvironment::restore() const { (void)std::fesetenv(&environment_); }
void FloatEnvironment::set_default() { (void)std::fesetenv(FE_DFL_ENV); }

#endif

Call::Call() : outer_(g_call) {
  error_[0] = '\0';
  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
  caller_.save();
  FloatEnvironment::set_default();
  g_call = this;
}

Call::~Call() {
  g_call = outer_;
  caller_.restore();
  (void)pthread_setcancelstate(cancellation_, nullptr);
}

void Call::publish_error() const { std::memcpy(g_error, error_, std::strlen(error_) + 1); }

char* Call::error_text() { return g_call != nullptr ? g_call->error_ : g_error; }
const char* Call::published_error_text() { return g_error; }

Call::Break::Break() : call_(g_call) {
  if (call_ == nullptr) return;
  g_call = nullptr;
  call_->caller_.restore();
}

Call::Break::~Break() {
  if (call_ == nullptr) return;
  call_->caller_.save();
  FloatEnvironment::set_default();
  g_call = call_;
}

const void* this_thread() {
  static thread_local char mark;
  return &mark;
}

}  // namespace weir
