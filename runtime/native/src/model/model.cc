#include "model/model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "error.h"
#include "model/columns.h"
#include "threads/threads.h"

namespace mlcc {
namespace {

constexpr int kGoOn = 0;  // an instrument's return value
constexpr const char* kNames[kRoles] = {"forward", "forward_adapters", "forward_mtp",  "forward_align",
                                        "sample",  "adjust",           "top_logprobs", "copy_pages"};

Role forward_of(const Step& step) {
  if (step.mtp) return kForwardMtp;
  return step.adapted > 0 ? kForwardAdapters : kForward;
}

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

ffi::Optional<ffi::Module> collectives_of(Ranks* ranks) {
  if (ranks == nullptr) return std::nullopt;
  return ranks->collectives();
}

// Records calls while it lives.
class Noting {
 public:
  Noting(Calls*& place, Calls* calls) : place_(place) { place = calls; }
  Noting(const Noting&) = delete;
  ~Noting() { place_ = nullptr; }

 private:
  Calls*& place_;
};

}  // namespace

Model::Model(const mlcc_executor_options& options)
    : layout_(options),
      device_(options.device, options.device_index),
      ranks_(Ranks::of(options)),
      library_(library_of(options), device_.id(), collectives_of(ranks_.get())),
      threads_(options.threads),
      weights_(weights_of(options)),
      caches_(caches_of(options)),
      low_rank_(options, device_),
      step_(ranks_ ? Inbox{ranks_->step(), ranks_->step()} : device_.inbox(layout_.words, "steps")),
      last_sampled_(device_.words(options.bounds.rows, "tokens")),
      log_(layout_, groups_of(options, caches_), device_.is_host()),
      decodes_(layout_, device_.is_host()) {
  find_functions(options);
  if (!ranks_) return;
  adjustments_ = Inbox{ranks_->adjustments(), ranks_->adjustments()};
  ranks_->join();
}

void Model::find_functions(const mlcc_executor_options& options) {
  for (int32_t i = 0; i < options.num_functions; ++i) {
    const char* name = options.functions[i];
    ffi::Function found = library_.function(name);  // also of functions that are not called here
    for (int role = 0; role < kRoles; ++role) {
      if (std::strcmp(name, kNames[role]) == 0) functions_[role] = found;
    }
  }
  if (options.kernel_interface == nullptr) return;
  std::string found = library_.interface();
  if (found != options.kernel_interface) {
    throw Error(MLCC_INTERFACE, "it says " + found + ", the manifest " + options.kernel_interface);
  }
}

std::vector<ffi::Tensor> Model::weights_of(const mlcc_executor_options& options) {
  std::vector<ffi::Tensor> weights;
  int64_t done = 0;
  for (int32_t i = 0; i < options.num_weights; ++i) {
    ffi::Tensor here = files_.tensor(options.weights[i]);
    weights.push_back(device_.placed(here, "the weights"));
    if (options.weights[i].matrices > 0 && device_.is_host()) experts_.add(here, options.weights[i].matrices);
    done += bytes_of(here);
    if (options.progress != nullptr) options.progress(options.progress_context, done);
  }
  if (!device_.is_host()) files_ = {};  // the weights were copied
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
    caches.push_back(device_.empty(shape, dtype, "caches"));
    cache_groups_.push_back(cache.group);
  }
  return caches;
}

const ffi::Function& Model::function(Role role) const {
  if (functions_[role] != nullptr) return functions_[role];
  throw Error(MLCC_UNSUPPORTED, "the library has no '" + std::string(kNames[role]) + "'");
}

ffi::Function Model::running(Role role) {
  if (!log_.is_watching() && noting_ == nullptr && !experts_.any()) return function(role);
  function(role);
  auto hook = [this](ffi::PackedArgs hooked, ffi::Any* result) {
    *result = kGoOn;
    on_call(hooked);
  };
  return library_.hooked(kNames[role], ffi::Function::FromPacked(hook));
}

void Model::on_call(const ffi::PackedArgs& hooked) {
  if (experts_.any() && hooked[kHookedBefore].cast<bool>() &&
      Experts::is_expert_kernel(hooked[kHookedName].cast<ffi::String>())) {
    experts_.expect(hooked.data() + kHookedArguments, hooked.size() - kHookedArguments);
  }
  if (noting_ != nullptr) {
    noting_->note(hooked, library_.workspace());
  } else if (log_.is_watching()) {
    log_.note(hooked);
  }
}

int32_t* Model::adjustment_words() {
  if (!adjustments_) adjustments_ = device_.inbox(layout_.bounds.adjust_words, "adjustments");
  return words_of(adjustments_->here);
}

Step Model::checked() {
  Step step = check_step(layout_, step_words(), previous_);
  log_.begin(step);
  return step;
}

void Model::send_step(const Step& step) {
  device_.send(step_, std::accumulate(step.pages.begin(), step.pages.end(), int64_t{layout_.pages.offset}));
}

void Model::copy_pages(const Step& step) {
  if (step.copies > 0) running(kCopyPages)(step_.there, ffi::Shape{step.copies}, caches_);
}

ffi::Tensor Model::forward(const Step& step, const std::vector<int64_t>& pages, Role role) {
  std::vector<int64_t> sizes{step.tokens, step.sequences, step.rows};
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    if (layout_.groups[g].has_pages()) sizes.push_back(pages[g]);
  }
  ffi::Shape shape(sizes.begin(), sizes.end());
  if (role == kForwardAdapters) {
    auto found = running(role)(step_.there, shape, last_sampled_, caches_, low_rank_.tensors(), weights_);
    return found.cast<ffi::Tensor>();
  }
  return running(role)(step_.there, shape, last_sampled_, caches_, weights_).cast<ffi::Tensor>();
}

void Model::adjust(const ffi::Tensor& logits) { running(kAdjust)(logits, adjustments_->there, last_sampled_); }

void Model::compute(const Step& step, bool adjusted, Decode& decode, bool kept) {
  {
    Noting calls(noting_, kept ? &decode.forward : nullptr);
    decode.logits = forward(step, kept ? decode.pages : step.pages, forward_of(step));
  }
  if (adjusted) adjust(*decode.logits);
  Noting calls(noting_, kept ? &decode.sample : nullptr);
  auto sampled = running(kSample)(*decode.logits, step_.there).cast<ffi::Array<ffi::Any>>();
  decode.tokens = sampled[0].cast<ffi::Tensor>();
  decode.logprobs = sampled[1].cast<ffi::Tensor>();
}

void Model::replay(bool adjusted, const Decode& decode) {
  use_.nanoseconds += decode.forward.run(experts_);
  if (adjusted) adjust(*decode.logits);
  use_.nanoseconds += decode.sample.run(experts_);
  use_.replays += 1;
}

Results Model::results_of(const Step& step, const Decode& decode) {
  std::vector<ffi::Tensor> read{*decode.tokens, *decode.logprobs};
  int32_t top = 0;
  if (step.top_logprobs > 0) {
    auto found = running(kTopLogprobs)(*decode.logits, step_.there, *decode.tokens, *decode.logprobs);
    for (const ffi::Any& each : found.cast<ffi::Array<ffi::Any>>()) read.push_back(each.cast<ffi::Tensor>());
    top = static_cast<int32_t>(read.back().size(1));
  }
  device_.copy(*decode.tokens, last_sampled_);
  return {device_.read(read), step.rows, top};
}

int64_t Model::submit(bool adjusted) {
  Step step = checked();
  if (adjusted) check_adjustments(layout_, adjustment_words(), step, previous_.rows);
  for (Role role : {forward_of(step), kSample}) function(role);  // fails before anything runs
  if (adjusted) function(kAdjust);
  if (step.copies > 0) function(kCopyPages);
  if (step.top_logprobs > 0) function(kTopLogprobs);
  Turn turn(threads_);
  Together together(ranks_.get(), adjusted ? Command::kAdjustedStep : Command::kStep);
  send_step(step);
  if (adjusted) device_.send(*adjustments_, adjustment_words()[adjust_header::words]);
  copy_pages(step);
  Decode* kept = log_.is_watching() ? nullptr : decodes_.find(step);
  bool replayed = kept != nullptr;
  if (replayed) {
    Held held(*kept, library_.workspace());  // until the results are read, or that is queued
    replay(adjusted, *kept);
    results_.emplace(next_ticket_, results_of(step, *kept));
  } else {
    Decode made{kind_of(step), decodes_.pages_of(step), {}, {}, {}, {}, {}};
    bool keep = decodes_.wanted(step) && !log_.is_watching();
    compute(step, adjusted, made, keep);
    results_.emplace(next_ticket_, results_of(step, made));
    if (keep) decodes_.keep(std::move(made), library_.workspace());
  }
  if (!replayed || adjusted || step.top_logprobs > 0) library_.rest();
  together.finish();
  previous_ = {step.rows, step.tokens};
  return next_ticket_++;
}

Results Model::take(int64_t ticket) {
  auto found = results_.extract(ticket);
  if (found.empty()) {
    throw Error(MLCC_STATE, "there is no ticket " + std::to_string(ticket) + ", or it was collected");
  }
  return std::move(found.mapped());
}

ffi::Tensor Model::logits() { return output_of(false); }

ffi::Tensor Model::alignment() {
  require_alone("aligns no words");
  return output_of(true);
}

ffi::Tensor Model::output_of(bool aligned) {
  Step step = checked();
  Role role = aligned ? kForwardAlign : forward_of(step);
  function(role);  // fails before anything runs
  Turn turn(threads_);
  Together together(ranks_.get(), Command::kLogits);
  send_step(step);
  copy_pages(step);
  ffi::Tensor found = device_.host(forward(step, step.pages, role));
  previous_.tokens = step.tokens;
  library_.rest();
  together.finish();
  return found;
}

mlcc_use Model::use() {
  use_.workspace = library_.workspace().bytes();
  return use_;
}

void Model::watch(bool on) {
  if (on) {
    device_.profile();
  } else if (log_.is_watching()) {
    log_.add(device_.profiled());
  }
  log_.watch(on);
}

}  // namespace mlcc
