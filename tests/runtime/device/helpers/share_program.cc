// What the share of the cores makes of steps beside others, in made-up time: prints the threads of
// each phase's last step, and how often it changed.
#include <cstdio>

#include "threads/share.h"

namespace {

using std::chrono::milliseconds;

mlcc::Share share;
mlcc::Share::Clock::time_point now;
mlcc::Share::Duration used;

// Steps of 4 ms for so long; `cores(threads)` is what the process gets. Then a pause.
template <typename Cores>
void phase(const char* name, int wanted, int length_ms, int pause_ms, Cores cores) {
  int threads = 0, changes = -1, fewest = wanted, steps = 0, all = 0;
  for (auto end = now + milliseconds(length_ms); now < end; ++steps) {
    int given = share.begin(wanted, now, [] { return used; });
    changes += given != threads;
    threads = given;
    all += given;
    if (given < fewest) fewest = given;
    now += milliseconds(4);
    used += std::chrono::duration_cast<mlcc::Share::Duration>(milliseconds(4) * cores(given));
    share.end(now, [] { return used; });
    now += milliseconds(pause_ms);
  }
  std::printf("%s: last %d, fewest %d, mean %.2f, changes %d\n", name, threads, fewest,
              double(all) / steps, changes);
}

}  // namespace

int main() {
  auto alone = [](int threads) { return double(threads); };
  phase("alone", 2, 2000, 0, alone);
  phase("beside one on two cores", 2, 20000, 0, [](int n) { return n == 2 ? 1.33 : 1.0; });
  phase("alone again", 2, 3000, 0, alone);
  phase("with pauses, waiting", 2, 2000, 20, alone);
  phase("beside as many of eight", 8, 20000, 0, [](int n) { return n > 4 ? 8.0 * n / (n + 8) : n; });
  phase("eight again", 8, 9000, 0, alone);
  phase("one thread", 1, 200, 0, [](int) { return 0.5; });
  return 0;
}
