// Busy waiting for another thread that is nearly done.
#ifndef MLCC_SPIN_H_
#define MLCC_SPIN_H_

namespace mlcc {

constexpr int kPauses = 64;  // before the core is yielded

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mlcc

#endif  // MLCC_SPIN_H_
