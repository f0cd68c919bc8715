// The threads that kernels of all models of a process share.
//
// TVM's own pool belongs to the calling thread, so each caller would get another pool. This one is
// taken in turns: any thread may run a step, one at a time if steps use more than one thread.
#ifndef MLCC_THREADS_H_
#define MLCC_THREADS_H_

#include <mutex>

namespace mlcc {

// While it lives, kernels that this thread calls run on `most` threads, including this one, or on
// fewer if other processes use the cores.
class Turn {
 public:
  explicit Turn(int most);
  Turn(const Turn&) = delete;
  ~Turn();

  int threads() const { return threads_; }

 private:
  std::unique_lock<std::mutex> lock_;
  int threads_, before_;
};

}  // namespace mlcc

#endif  // MLCC_THREADS_H_
