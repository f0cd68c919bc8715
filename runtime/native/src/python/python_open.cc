// open() of the Python module: converts tuples to a model's records.
#include <memory>

#include "python/python.h"

namespace mlcc::python {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

const int64_t* keep_shape(PyObject* sizes, Shapes* shapes) {
  shapes->push_back(items<int64_t>(sizes, [](PyObject* size) { return static_cast<int64_t>(integer(size)); }));
  return shapes->back().data();
}

// The callback for the number of loaded bytes of weights.
struct Progress {
  PyObject* callable;
  PyThreadState* state;  // of the opening thread, which also calls back
};

void report_progress(void* context, int64_t bytes) {
  auto* progress = static_cast<Progress*>(context);
  PyEval_RestoreThread(progress->state);
  PyObject* answered = PyObject_CallFunction(progress->callable, "L", static_cast<long long>(bytes));
  if (answered == nullptr) PyErr_WriteUnraisable(progress->callable);  // Python stores the callback's exceptions
  Py_DecRef(answered);
  progress->state = PyEval_SaveThread();
}

}  // namespace

// (library, interface, threads, device, index, functions, weights, groups, caches, layout, bounds, progress,
// adapters, ranks, token_columns):
// paths and dtypes are bytes, `interface` a str or None; a weight is (path, offset, dtype, shape, matrices), a group
// (kind, page size, pool, most pages), a cache (group, dtype, shape), a table of the layout (offset, entries),
// adapters (slots, rank, ((rows, columns), ...)), ranks (rank, count, memory, (peer, ...)).
PyObject* open_executor(PyObject*, PyObject* arguments) {
  return guarded([=] {
    mlcc_executor_options options{};
    options.abi = MLCC_EXECUTOR_ABI;
    PyObject *functions = nullptr, *weights = nullptr, *groups = nullptr, *caches = nullptr, *callable = nullptr;
    PyObject *shapes_of_adapters = nullptr, *peers = nullptr;
    mlcc_step_layout& to = options.layout;
    mlcc_bounds& bounds = options.bounds;
    parse(arguments, "yziiiOOOO((ii)(ii)(ii)(ii)(ii)(ii)i)(iiiiiii)O(iiO)(iiiO)i", &options.library, &options.kernel_interface,
          &options.threads, &options.device, &options.device_index, &functions, &weights, &groups, &caches,
          &to.header.offset, &to.header.entries, &to.sequences.offset, &to.sequences.entries, &to.rows.offset,
          &to.rows.entries, &to.copies.offset, &to.copies.entries, &to.tokens.offset, &to.tokens.entries,
          &to.pages.offset, &to.pages.entries, &to.words, &bounds.vocabulary, &bounds.context, &bounds.tokens,
          &bounds.sequences, &bounds.rows, &bounds.adjust_rows, &bounds.adjust_words, &callable,
          &options.adapter_slots, &options.adapter_rank, &shapes_of_adapters, &options.ranks.rank, &options.ranks.count,
          &options.ranks.memory, &peers, &options.token_columns);

    Shapes shapes;  // inner vectors stay where they are
    auto names = items<const char*>(functions, [](PyObject* name) { return made(PyBytes_AsString(name)); });
    auto mapped = items<mlcc_weight>(weights, [&](PyObject* item) {
      mlcc_weight weight{};
      PyObject *shape = nullptr, *offset = nullptr;
      parse(item, "yOyOi", &weight.path, &offset, &weight.dtype, &shape, &weight.matrices);
      weight.offset = PyLong_AsUnsignedLongLong(offset);
      if (PyErr_Occurred() != nullptr) throw Raised();
      weight.shape = keep_shape(shape, &shapes);
      weight.dimensions = static_cast<int32_t>(shapes.back().size());
      return weight;
    });
    auto kept = items<mlcc_group>(groups, [](PyObject* item) {
      mlcc_group group{};
      parse(item, "iiii", &group.kind, &group.page_size, &group.pool, &group.most_pages);
      return group;
    });
    auto tensors = items<mlcc_cache>(caches, [&](PyObject* item) {
      mlcc_cache cache{};
      PyObject* shape = nullptr;
      parse(item, "iyO", &cache.group, &cache.dtype, &shape);
      cache.shape = keep_shape(shape, &shapes);
      cache.dimensions = static_cast<int32_t>(shapes.back().size());
      return cache;
    });
    auto adapters = items<mlcc_adapter_tensor>(shapes_of_adapters, [](PyObject* item) {
      long long rows = 0, columns = 0;
      parse(item, "LL", &rows, &columns);
      return mlcc_adapter_tensor{rows, columns};
    });
    auto ends = items<int32_t>(peers, [](PyObject* item) { return static_cast<int32_t>(integer(item)); });
    options.ranks.peers = ends.data();
    options.ranks.num_peers = static_cast<int32_t>(ends.size());
    options.adapters = adapters.data();
    options.num_adapters = static_cast<int32_t>(adapters.size());
    options.functions = names.data();
    options.num_functions = static_cast<int32_t>(names.size());
    options.weights = mapped.data();
    options.num_weights = static_cast<int32_t>(mapped.size());
    options.groups = kept.data();
    options.num_groups = static_cast<int32_t>(kept.size());
    options.caches = tensors.data();
    options.num_caches = static_cast<int32_t>(tensors.size());

    auto results = std::make_unique<ResultBuffers>(static_cast<size_t>(bounds.rows));
    Held opened(_PyObject_New(executor_type));
    auto* executor = reinterpret_cast<Executor*>(opened.get());
    executor->handle = nullptr;
    executor->results = results.release();
    Progress progress{callable, nullptr};
    options.progress = report_progress;
    options.progress_context = &progress;
    progress.state = PyEval_SaveThread();
    mlcc_executor_status status = mlcc_executor_open(&options, &executor->handle);
    PyEval_RestoreThread(progress.state);
    raise_unless_ok(status);
    return opened.release();
  });
}

}  // namespace mlcc::python
