// Export and import of pages, for transfers between executors.
#include <cstring>

#include "error.h"
#include "model/model.h"

namespace mlcc {
namespace {

// Merges consecutive ids: begin, count.
std::vector<std::pair<int64_t, int64_t>> runs_of(const int32_t* ids, int32_t count) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int32_t i = 0; i < count; ++i) {
    if (!runs.empty() && ids[i] == runs.back().first + runs.back().second) {
      ++runs.back().second;
    } else {
      runs.emplace_back(ids[i], 1);
    }
  }
  return runs;
}

}  // namespace

template <typename Byte, typename Move>
void Model::each_page_run(const PageIds& of, Byte* bytes, size_t size, Move move) const {
  require_alone("moves no pages");
  require(results_.empty(), MLCC_STATE, "pages are moved between steps, and some are not collected");
  require(of.group >= 0 && of.group < static_cast<int32_t>(layout_.groups.size()), MLCC_ARGUMENT,
          "pages of no group");
  require(of.count >= 0 && (of.ids != nullptr || of.count == 0), MLCC_ARGUMENT, "pages without ids");
  int64_t pool = layout_.groups[of.group].pool;
  for (int32_t i = 0; i < of.count; ++i) {
    require(of.ids[i] >= 0 && of.ids[i] < pool, MLCC_ARGUMENT, "a page that the pool does not have");
  }
  size_t page = 0;
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (cache_groups_[i] == of.group) page += static_cast<size_t>(bytes_of(caches_[i]) / pool);
  }
  require(size == page * static_cast<size_t>(of.count), MLCC_ARGUMENT, "not the bytes of so many pages");
  auto runs = runs_of(of.ids, of.count);
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (cache_groups_[i] != of.group) continue;
    int64_t each = bytes_of(caches_[i]) / pool;
    for (auto [first, count] : runs) {
      move(caches_[i], first * each, count * each, bytes);
      bytes += count * each;
    }
  }
}

void Model::read_pages(const PageIds& of, char* bytes, size_t size) const {
  each_page_run(of, bytes, size, [this](const ffi::Tensor& cache, int64_t offset, int64_t count, char* to) {
    device_.read_part(cache, offset, count, to);
  });
}

void Model::write_pages(const PageIds& of, const char* bytes, size_t size) {
  each_page_run(of, bytes, size, [this](const ffi::Tensor& cache, int64_t offset, int64_t count, const char* from) {
    device_.write_part(from, count, cache, offset);
  });
}

}  // namespace mlcc
