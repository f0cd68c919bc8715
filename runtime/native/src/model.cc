#include "model.h"

#include "columns.h"
#include "error.h"
#include "threads.h"

namespace mlcc {
namespace {

ffi::Tensor words(int64_t count, const char* what) { return zeros(ffi::Shape{count}, kInt32, what); }

const char* library_of(const mlcc_executor_options& options) {
  require(options.library != nullptr, MLCC_ARGUMENT, "no library is named");
  require(options.threads > 0, MLCC_ARGUMENT, "kernels need at least one thread");
  return options.library;
}

std::map<const void*, int32_t> groups_of(const mlcc_executor_options& options,
                                         const ffi::Array<ffi::Tensor>& caches) {
  std::map<const void*, int32_t> groups;
  for (int32_t i = 0; i < options.num_caches; ++i) groups[caches[i].data_ptr()] = options.caches[i].group;
  return groups;
}

}  // namespace

Model::Model(const mlcc_executor_options& options)
    : layout_(options),
      library_(library_of(options)),
      threads_(options.threads),
      weights_(weights_of(options)),
      caches_(caches_of(options)),
      step_(words(layout_.words, "steps")),
      last_sampled_(words(1, "a token")),
      log_(layout_, groups_of(options, caches_)) {
  find_functions(options);
}

void Model::find_functions(const mlcc_executor_options& options) {
  for (int32_t i = 0; i < options.num_functions; ++i) {
    functions_[options.functions[i]] = library_.function(options.functions[i]);
  }
  if (options.interface == nullptr) return;
  std::string found = library_.interface();
  if (found != options.interface) {
    throw Error(MLCC_INTERFACE, "it says " + found + ", the manifest " + options.interface);
  }
}

std::vector<ffi::Tensor> Model::weights_of(const mlcc_executor_options& options) {
  std::vector<ffi::Tensor> weights;
  for (int32_t i = 0; i < options.num_weights; ++i) weights.push_back(files_.tensor(options.weights[i]));
  return weights;
}

std::vector<ffi::Tensor> Model::caches_of(const mlcc_executor_options& options) {
  std::vector<ffi::Tensor> caches;
  for (int32_t i = 0; i < options.num_caches; ++i) {
    const mlcc_cache& cache = options.caches[i];
    bool grouped = cache.group >= 0 && cache.group < options.num_groups;
    require(grouped, MLCC_ARGUMENT, "a cache of no group");
    DLDataType dtype = dtype_of(cache.dtype);
    ffi::Shape shape = shape_of(cache.shape, cache.dimensions, dtype);
    bool pooled = cache.dimensions > 0 && cache.shape[0] == layout_.groups[cache.group].pool;
    require(pooled, MLCC_ARGUMENT, "a cache that is not as large as its pool");
    caches.push_back(empty(shape, dtype, "caches"));
  }
  return caches;
}

const ffi::Function& Model::function(const char* name) const {
  auto found = functions_.find(name);
  if (found == functions_.end()) throw Error(MLCC_LIBRARY, "the library has no '" + std::string(name) + "'");
  return found->second;
}

int32_t* Model::adjustment_words() {
  if (!adjustments_) adjustments_ = words(layout_.bounds.adjust_words, "adjustments");
  return words_of(*adjustments_);
}

Step Model::checked() {
  Step step = check_step(layout_, step_words(), static_cast<int32_t>(last_sampled_.size(0)));
  log_.begin(step);
  return step;
}

ffi::Tensor Model::forward(const Step& step) {
  if (step.copies > 0) function("copy_pages")(step_, ffi::Shape{step.copies}, caches_);
  std::vector<int64_t> sizes{step.tokens, step.sequences, step.rows};
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    if (layout_.groups[g].has_pages()) sizes.push_back(step.pages[g]);
  }
  ffi::Shape shape(sizes.begin(), sizes.end());
  return function("forward")(step_, shape, last_sampled_, caches_, weights_).cast<ffi::Tensor>();
}


int64_t Model::submit(bool adjusted) {
  Step step = checked();
  if (adjusted) {
    int32_t previous = static_cast<int32_t>(last_sampled_.size(0));
    check_adjustments(layout_, adjustment_words(), step, previous);
    function("adjust");  // before anything runs
  }
  const ffi::Function& sample = function("sample");
  Turn turn(threads_);
  ffi::Tensor logits = forward(step);
  if (adjusted) function("adjust")(logits, *adjustments_, last_sampled_);
  auto sampled = sample(logits, step_).cast<ffi::Array<ffi::Any>>();
  Results results{sampled[0].cast<ffi::Tensor>(), sampled[1].cast<ffi::Tensor>(), {}, {}};
  if (step.top_logprobs > 0) {
    auto top = function("top_logprobs")(logits, step_, results.tokens, results.logprobs);
    auto pair = top.cast<ffi::Array<ffi::Any>>();
    results.top_tokens = pair[0].cast<ffi::Tensor>();
    results.top_logprobs = pair[1].cast<ffi::Tensor>();
  }
  last_sampled_ = results.tokens;
  results_.emplace(next_ticket_, results);
  return next_ticket_++;
}

const Results& Model::results(int64_t ticket) const {
  auto found = results_.find(ticket);
  if (found == results_.end()) {
    throw Error(MLCC_STATE, "there is no ticket " + std::to_string(ticket) + ", or it was collected");
  }
  return found->second;
}

ffi::Tensor Model::logits() {
  Step step = checked();
  Turn turn(threads_);
  return forward(step);
}

void Model::watch(bool on) {
  if (on && !instrumented_) library_.instrument(log_.hook());
  instrumented_ = instrumented_ || on;
  log_.watch(on);
}

}  // namespace mlcc
