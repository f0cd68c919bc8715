// What a thread does while it waits for another that is nearly there.
#ifndef MLCC_SPIN_H_
#define MLCC_SPIN_H_

namespace mlcc {

constexpr int kPauses = 64;  // before the core is offered to others

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace mlcc

#endif  // MLCC_SPIN_H_
