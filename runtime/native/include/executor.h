// One compiled model on one device: steps in, tokens out. The lowest C API of mlcc; mlcc.h, with
// requests and text, is built on it.
//
// It reads no manifest: the caller has read and checked it, and passes records that say what to load,
// map and allocate. `mlcc.engine.batch.tables` defines the layout of a step's words; they are checked
// here before any kernel reads them, so that no words can make a kernel read out of bounds.
//
// Any thread may call. Calls for one executor wait for each other; so do computations of several, if
// they use more than one thread. No call throws. Records and their arrays are copied.
#ifndef MLCC_EXECUTOR_H_
#define MLCC_EXECUTOR_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && defined(MLCC_BUILDS_EXECUTOR)
#define MLCC_API __declspec(dllexport)
#elif defined(_WIN32)
#define MLCC_API __declspec(dllimport)
#elif defined(__GNUC__)
#define MLCC_API __attribute__((visibility("default")))
#else
#define MLCC_API
#endif

// The ABI of this header; `mlcc_executor_abi` returns the library's.
#define MLCC_EXECUTOR_ABI 6

typedef enum {
  MLCC_OK = 0,
  MLCC_ARGUMENT = 1,   // a record or a step that cannot be obeyed
  MLCC_LIBRARY = 2,    // the library does not load, or lacks a function of the list
  MLCC_INTERFACE = 3,  // the library was compiled for another manifest
  MLCC_WEIGHTS = 4,    // a file of weights cannot be mapped, or ends before a weight does
  MLCC_DEVICE = 5,     // the device or a kernel failed
  MLCC_MEMORY = 6,     // no memory
  MLCC_STATE = 7,      // there is no such ticket, or it was collected
  MLCC_UNSUPPORTED = 8,  // the step needs a function that the library does not have
  MLCC_LOST = 9,       // the device is gone: nothing on it can be used again
  MLCC_RANK = 10,      // another rank ended or failed: nothing can be computed again
} mlcc_executor_status;

typedef struct mlcc_executor mlcc_executor;

// The device of a model.
typedef enum {
  MLCC_CPU = 0,
  MLCC_WEBGPU = 1,  // a GPU through Vulkan: `mlcc_executor_webgpu` comes first
} mlcc_device_kind;

// One weight in a file: little-endian, row-major. Read in place where it is aligned to 64 bytes.
typedef struct {
  const char* path;
  uint64_t offset;
  const char* dtype;  // as the manifest spells it
  int32_t dimensions;
  const int64_t* shape;
  int32_t matrices;  // of experts, concatenated, if steps prefetch the selected ones; else 0
} mlcc_weight;

// MLCC_EMBEDDINGS: rows that the host writes in place of tokens, the last group. It has no columns in a step: the
// token id `vocabulary` + i names row i. Its last `most_pages` rows are not the host's: `forward` keeps the hidden
// states of a step's tokens there for `forward_mtp`.
typedef enum { MLCC_PAGED = 0, MLCC_WINDOW = 1, MLCC_STATES = 2, MLCC_EMBEDDINGS = 3 } mlcc_group_kind;

// A cache group: layers whose caches grow and are freed together.
typedef struct {
  int32_t kind;       // mlcc_group_kind
  int32_t page_size;  // tokens a page; 1 for states
  int32_t pool;       // pages or slots
  int32_t most_pages; // most entries of its page list in one step; 0 for states
} mlcc_group;

// One tensor of a group's caches; its first size is the group's pool.
typedef struct {
  int32_t group;
  const char* dtype;
  int32_t dimensions;
  const int64_t* shape;
} mlcc_cache;

// One table of a step's buffer; its columns are compiled in (columns.h).
typedef struct {
  int32_t offset;   // in words
  int32_t entries;  // capacity
} mlcc_table;

typedef struct {
  mlcc_table header, sequences, rows, copies, tokens, pages;
  int32_t words;  // of the whole buffer
} mlcc_step_layout;

typedef struct {
  int32_t vocabulary;
  int32_t context;  // tokens of the longest sequence
  int32_t tokens, sequences, rows;  // of one step; at most the layout's
  int32_t adjust_rows, adjust_words;  // `mlcc.engine.batch.adjust_tables`: capacity in rows, words in all
} mlcc_bounds;

// A tensor of LoRA adapter slots: float32[slots, rows, columns].
typedef struct {
  int64_t rows, columns;
} mlcc_adapter_tensor;

// A matrix of an adapter and its position in a slot; the rest of the slot is zeros.
typedef struct {
  int32_t tensor;         // index among the options' tensors
  int32_t transposed;     // `data` is [columns, rows]
  int64_t row, column;    // position in the slot's part of the tensor
  int64_t rows, columns;  // size there
  const char* dtype;      // float32, float16 or bfloat16
  const void* data;       // row-major, little-endian
  uint64_t bytes;         // of the data
  float scale;            // factor of all elements
} mlcc_adapter_matrix;

// Processes that compute a model together, each with its own part of the weights and caches. All open the
// same library with records that differ only in weights; rank 0 gets the calls, the others `follow` it.
typedef struct {
  int32_t rank, count;   // count 0 = no ranks
  int32_t memory;        // descriptor of shared memory: initially empty, zeros where it grows
  int32_t num_peers;
  const int32_t* peers;  // descriptors that hang up when a process ends: rank 0 has all others', they have rank 0's
} mlcc_ranks;

typedef struct {
  int32_t abi;           // MLCC_EXECUTOR_ABI
  int32_t threads;       // of kernels, at least 1
  const char* library;   // path; or "linked:" and the prefix of a linked model.a
  const char* kernel_interface;  // the interface that the library must have; NULL = any
  const char* const* functions;  // the library's functions, as in the manifest
  int32_t num_functions;
  int32_t num_weights;
  const mlcc_weight* weights;  // in the order in which `forward` takes them
  int32_t num_groups;
  int32_t num_caches;
  const mlcc_group* groups;
  const mlcc_cache* caches;  // in the order in which `forward` takes them
  mlcc_step_layout layout;
  mlcc_bounds bounds;
  int32_t device;        // mlcc_device_kind
  int32_t device_index;  // number among its kind
  void (*progress)(void* context, int64_t bytes);  // called with loaded bytes of weights; may be NULL
  void* progress_context;
  int32_t adapter_slots;  // adapters on the device at once; 0 = no slots
  int32_t adapter_rank;   // largest rank of an adapter
  int32_t num_adapters;
  const mlcc_adapter_tensor* adapters;  // in the order in which `forward_adapters` takes them
  mlcc_ranks ranks;  // CPUs only
  int32_t token_columns;  // a bit for each further column of tokens: visible_until 1, position_t 2, position_h 4,
                          // position_w 8, hidden_row 16, visible_from 32, source_row 64
} mlcc_executor_options;

// Statistics of a kernel since `mlcc_executor_watch`.
typedef struct {
  char name[64];
  char shape[64];  // of its largest argument
  int64_t calls;
  int64_t nanoseconds;
  int64_t bytes;  // of its arguments, each moved once; of caches and embeddings only the used parts
} mlcc_kernel;

// Statistics of an executor since it was opened.
typedef struct {
  int64_t workspace;    // bytes of steps, beside weights and caches; kept until it is closed
  int64_t replays;      // steps whose kernel calls were replayed, without the virtual machine
  int64_t nanoseconds;  // of these calls
} mlcc_use;

MLCC_API int32_t mlcc_executor_abi(void);

// Why the last call of this thread failed, in one line; valid until its next one.
MLCC_API const char* mlcc_executor_error(void);

// 1 if the program has linked a model's static library (`mlcc compile --static-library`) with this
// symbol prefix, and uses it; see the header beside the library.
MLCC_API int32_t mlcc_executor_linked(const char* prefix);

// Sets the path of the shared library wgpu-native, or "" and the reason. Loads nothing.
MLCC_API mlcc_executor_status mlcc_executor_webgpu(const char* path, const char* why_absent);

// This machine's GPUs, best first, as JSON: {"devices": [{...}], "reason": why there are none}. The
// text is valid until this thread's next call.
MLCC_API mlcc_executor_status mlcc_executor_webgpu_devices(const char** json);

// Frees all of this process's GPU resources at once, for a program that may no longer use the GPU.
// Executors on it then fail with MLCC_LOST, and no new one can be opened.
MLCC_API mlcc_executor_status mlcc_executor_webgpu_close(int32_t device_index);

// Loads the library, maps the weights, allocates the caches. `*executor` is NULL on failure. Each rank waits
// here for all others.
MLCC_API mlcc_executor_status mlcc_executor_open(const mlcc_executor_options* options, mlcc_executor** executor);

// For ranks above 0: runs rank 0's steps until that is closed; MLCC_RANK if it ended otherwise.
MLCC_API mlcc_executor_status mlcc_executor_follow(mlcc_executor* executor);

// The buffers of the next step and of its adjustments, int32[layout.words] and
// int32[bounds.adjust_words], in this process's memory. They stay where they are until the executor is
// closed, and may be written again as soon as a step was submitted.
MLCC_API mlcc_executor_status mlcc_executor_step(mlcc_executor* executor, int32_t** words);
MLCC_API mlcc_executor_status mlcc_executor_adjustments(mlcc_executor* executor, int32_t** words);

// Fills an adapter slot, after the submitted steps: steps that are submitted later use the new contents.
MLCC_API mlcc_executor_status mlcc_executor_adapter(mlcc_executor* executor, int32_t slot,
                                                    const mlcc_adapter_matrix* matrices, int32_t count);

// Starts the step in the buffer, with `adjusted` also the adjustments in the other buffer. A CPU computes
// it now; on a GPU the step and the copy of its results are queued.
MLCC_API mlcc_executor_status mlcc_executor_submit(mlcc_executor* executor, int32_t adjusted, int64_t* ticket);

// Waits for a step, not for later ones, writes its results and forgets it: a token and a
// log-probability for each of its rows (space for bounds.rows). If a row requested top log-probabilities,
// `*top` is the number of entries of each row (else 0), and they are written too (space for
// bounds.rows * 20; token -1 = none).
MLCC_API mlcc_executor_status mlcc_executor_collect(mlcc_executor* executor, int64_t ticket, int32_t* tokens,
                                                    float* logprobs, int32_t* rows, int32_t* top_tokens,
                                                    float* top_logprobs, int32_t* top);

// Discards a step without its results, if it was not collected.
MLCC_API void mlcc_executor_forget(mlcc_executor* executor, int64_t ticket);

// Runs the step in the buffer without sampling, and writes its logits, [rows, vocabulary].
MLCC_API mlcc_executor_status mlcc_executor_logits(mlcc_executor* executor, float* logits, size_t capacity);

// Runs the step in the buffer for what its alignment heads multiply the rows of the window by, [rows, heads * rows of a
// window]. MLCC_UNSUPPORTED: the library has no `forward_align`.
MLCC_API mlcc_executor_status mlcc_executor_alignment(mlcc_executor* executor, float* weights, size_t capacity);

// As `logits`, but returns in `*sum` the natural log of the probability of `targets[r]`, summed over the
// `count` rows.
MLCC_API mlcc_executor_status mlcc_executor_likelihood(mlcc_executor* executor, const int32_t* targets,
                                                       int32_t count, double* sum);

// Read and write the contents of a group's pages (or state slots): cache after cache in the order of the
// options, page after page in each. `size` returns the number of bytes. Only between steps: MLCC_STATE
// while one is not collected.
MLCC_API mlcc_executor_status mlcc_executor_read_pages(mlcc_executor* executor, int32_t group, const int32_t* ids,
                                                       int32_t count, void* bytes, size_t size);
MLCC_API mlcc_executor_status mlcc_executor_write_pages(mlcc_executor* executor, int32_t group, const int32_t* ids,
                                                        int32_t count, const void* bytes, size_t size);

MLCC_API mlcc_executor_status mlcc_executor_use(mlcc_executor* executor, mlcc_use* use);

// Starts to measure every kernel call, with counters at 0, or stops. Steps are slower meanwhile.
MLCC_API mlcc_executor_status mlcc_executor_watch(mlcc_executor* executor, int32_t on);

// The measured kernels, unordered: writes up to `capacity` of them, and their number.
MLCC_API mlcc_executor_status mlcc_executor_kernels(mlcc_executor* executor, mlcc_kernel* kernels, int32_t capacity,
                                                    int32_t* count);

// The time of a copy of this many bytes within the device's memory.
MLCC_API mlcc_executor_status mlcc_executor_copy(mlcc_executor* executor, int64_t bytes, int64_t* nanoseconds);

// Counters of the GPU's commands since the process opened it, as JSON; {} for a CPU. The text is valid
// until this thread's next call.
MLCC_API mlcc_executor_status mlcc_executor_counts(mlcc_executor* executor, const char** json);

// Resizes 8-bit RGB, row by row, as Pillow does, to the byte; `resized` has room for 3 * to_width * to_height. filter:
// Pillow's number, 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic; or 4, PyTorch's bilinear of bytes with antialias. Sides
// are at most 16384. Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_resize(const uint8_t* pixels, int32_t width, int32_t height, int32_t filter,
                                                   uint8_t* resized, int32_t to_width, int32_t to_height);

// Resizes a grid of rows f32[lines, columns, width] to f32[to_lines, to_columns, width]: bilinear, corners not aligned.
// Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_resize_rows(const float* rows, int32_t lines, int32_t columns,
                                                        int32_t width, float* resized, int32_t to_lines,
                                                        int32_t to_columns);

// The log-mel spectrogram of samples at 16 kHz, f32[160 * (frames - 1) + 400], as f32[frames, bins], or nowhere.
// largest: the largest log10 of the recording so far, -infinity before; values further than 8 below it are raised to
// that. Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_log_mel(const float* samples, int32_t frames, int32_t bins,
                                                    double* largest, float* features);

// The log-mel spectrogram of Gemma 4's audio tower, of samples at 16 kHz, f32[160 * (frames - 1) + 320], as
// f32[frames, bins]. Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_usm_log_mel(const float* samples, int32_t frames, int32_t bins,
                                                        float* features);

// The same of Gemma 3n's, of samples f32[160 * (frames - 1) + 512].
MLCC_API mlcc_executor_status mlcc_executor_gemma3n_log_mel(const float* samples, int32_t frames, int32_t bins,
                                                            float* features);

// The row of a window at which each token begins: `weights` are f32[tokens, heads, rows], of which the first `used` rows
// of a head hold sound. Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_token_rows(const float* weights, int32_t tokens, int32_t heads,
                                                       int32_t rows, int32_t used, int32_t* begins);

// Changes the sample rate of sound: `out` has room for the `made` samples, count * to / from rounded up. Needs no
// executor.
MLCC_API mlcc_executor_status mlcc_executor_resample(const float* samples, int64_t count, int32_t from, int32_t to,
                                                     float* out, int64_t made);

// What a FLAC file says of itself.
typedef struct {
  int32_t rate, channels, bits;
  int64_t samples;  // of each channel; 0: unknown
  int64_t first;    // byte of the first frame
} mlcc_flac;

// Reads it. MLCC_ARGUMENT: no FLAC, or damaged. Needs no executor.
MLCC_API mlcc_executor_status mlcc_executor_flac_stream(const uint8_t* data, int64_t size, mlcc_flac* stream);

// Decodes whole frames of a FLAC file from byte `place` on, until there are `most` samples or more, or the file ends:
// the means of the channels, between -1 and 1, to `out`, which has room for most + 65536. `place` moves behind them.
MLCC_API mlcc_executor_status mlcc_executor_flac(const uint8_t* data, int64_t size, int64_t* place, int64_t most,
                                                 float* out, int64_t* made);

// Frees everything. NULL does nothing. No other call may be running or follow.
MLCC_API void mlcc_executor_close(mlcc_executor* executor);

#ifdef __cplusplus
}
#endif

#endif  // MLCC_EXECUTOR_H_
