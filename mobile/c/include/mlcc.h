/*
 * mlcc.h: the engine of mlcc inside a program, by a C ABI.
 *
 *     mlcc_host host = {.size = sizeof host, .abi = MLCC_ABI_VERSION};
 *     mlcc_create("{\"model\": \"path/to/model\"}", &host, &engine, &error);
 *     mlcc_request(engine, "POST", "/v1/chat/completions", NULL, body, size, &call, &error);
 *     mlcc_poll(engine, -1, &batch);      // HEAD, BODY ..., END
 *
 * A request and its answer are those of mlcc's HTTP API (OpenAI's), without HTTP: method, path,
 * headers and body go in; a status, headers and a body come out, in pieces when it is streamed.
 * The engine is Python's, in an embedded CPython: one interpreter in a process, any number of
 * models in it.
 *
 * THREADS. Any thread may call any function at any time, also from within a callback. No function
 * waits, but mlcc_start and the first mlcc_create (until Python runs, about a tenth of a second),
 * mlcc_stats and mlcc_close (for the step that runs), and mlcc_poll. `events` is called by one
 * thread per engine, which serves nothing else: a slow consumer holds up nobody but itself. The
 * tokenizer's callbacks are called by the thread that owns Python, one at a time: the engine waits
 * for them.
 *
 * OWNERSHIP. What goes in is copied before the function returns. What comes out by an out-parameter
 * belongs to the caller: strings go back by mlcc_free, batches by mlcc_batch_free. What a callback
 * is given is valid until it returns. Handles are numbers, never given twice: one that is no longer
 * valid is an error (MLCC_CLOSED), not a crash. Every out-parameter named `error` may be NULL; else
 * it is NULL on success and a string (to free) on failure.
 *
 * ERRORS. A code says what to do; the string beside it says the same in the shape of the API:
 *     {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
 * What a request asks wrongly is no error of these functions: it is answered, with status 400.
 *
 * GROWTH. Structs begin with their size as the caller knows it: fields are only added at the end,
 * and what a caller does not know is taken as 0. Enums grow too: treat an unknown kind of event as
 * none, an unknown code as a failure. MLCC_ABI_VERSION rises only when a caller must be changed.
 */
#ifndef MLCC_H
#define MLCC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MLCC_API __attribute__((visibility("default")))
#else
#define MLCC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define MLCC_ABI_VERSION 1u

/* What a function, or the end of a call, came to. */
typedef enum mlcc_code {
  MLCC_OK = 0,
  MLCC_TIMEOUT = 1,          /* mlcc_poll: nothing came in that time */
  MLCC_CANCELLED = 2,        /* the call was cancelled */
  MLCC_CLOSED = 3,           /* the engine was closed, or was never one */
  MLCC_STALLED = 4,          /* nobody took the events for too long: the call was cancelled */

  MLCC_BAD_ARGUMENT = 10,    /* NULL where something must be, or options that cannot be read */
  MLCC_BAD_ABI = 11,         /* made for another MLCC_ABI_VERSION: program, library or zip */
  MLCC_NO_CALLBACK = 12,     /* the model needs a callback that the host did not bring */
  MLCC_NO_PYTHON = 13,       /* no standard library where it was said or looked for */
  MLCC_OTHER_PYTHON = 14,    /* the process has an interpreter already, with other paths */
  MLCC_BAD_RUNTIME = 15,     /* the zip with mlcc's modules is missing, truncated or foreign */

  MLCC_BAD_MODEL = 20,       /* damaged, incomplete, of another machine or another version */
  MLCC_NO_MEMORY = 21,       /* the model, or what it was asked, does not fit */
  MLCC_DEVICE_FAILED = 22,   /* the device failed, or lacks something the model needs */
  MLCC_UNSUPPORTED = 23,     /* not built (yet) */

  MLCC_FAILED = 99           /* a bug in mlcc, or in a callback; the log has more */
} mlcc_code;

/* A model that answers, or 0. */
typedef uint64_t mlcc_engine;
/* A request that is being answered, or 0. */
typedef uint64_t mlcc_call;

/* ---- Events ------------------------------------------------------------------------------ */

typedef enum mlcc_event_kind {
  /* Of the engine itself (`call` is 0): */
  MLCC_EVENT_PROGRESS = 1, /* data: {"done": BYTES, "total": BYTES} of the weights */
  MLCC_EVENT_READY = 2,    /* data: {"model", "context", "max_batch", "notes": [...]}; requests made
                              before were waiting. Comes again after a return to the foreground */
  MLCC_EVENT_FAILED = 3,   /* status: a code; data: the error. Every call ends alike; close it */
  /* Of one call, in this order: HEAD and any number of BODY unless it failed before, and in any
   * case, last and once, END. */
  MLCC_EVENT_HEAD = 4,     /* status: HTTP's (200, 400 ...); data: a JSON object of headers, their
                              names in lower case */
  MLCC_EVENT_BODY = 5,     /* data: a piece of the body. A streamed answer (content-type
                              text/event-stream) comes as whole events: "data: {...}\n\n" */
  MLCC_EVENT_END = 6       /* status: MLCC_OK if the answer is complete, else a code and data: the
                              error */
} mlcc_event_kind;

typedef struct mlcc_event {
  mlcc_call call;
  uint32_t kind;    /* mlcc_event_kind */
  int32_t status;
  const char* data; /* `size` bytes of UTF-8, and a 0 behind them; never NULL */
  size_t size;
} mlcc_event;

/* All events that were there, in order: what one step of the model brought lies in one batch. */
typedef struct mlcc_batch {
  size_t count;
  const mlcc_event* events;
} mlcc_batch;

/* ---- What the host brings ---------------------------------------------------------------- */

/* Where a callback puts its answer. */
typedef struct mlcc_answer mlcc_answer;

/* Answer a callback: the bytes are copied; called again, they are appended. Within it only. */
MLCC_API void mlcc_give(mlcc_answer* answer, const void* data, size_t size);

/*
 * The host's part of an engine. Everything but `size` and `abi` may be 0.
 *
 * Tokenizer: `encode`, `decode` and `special_tokens`, all or none. None: Hugging Face's
 * `tokenizers`, if Python finds it, reads the model's tokenizer.json, else MLCC_NO_CALLBACK. They
 * return 0, or anything else if they fail, with what they gave as the reason: then the request is
 * answered by an error. Ids are int32_t in the machine's byte order.
 */
typedef struct mlcc_host {
  uint32_t size; /* sizeof(mlcc_host) */
  uint32_t abi;  /* MLCC_ABI_VERSION */
  /* Handed to every callback as it is. */
  void* context;

  /* Takes events as they come, a batch at a time; NULL: mlcc_poll brings them. */
  void (*events)(void* context, mlcc_engine engine, const mlcc_event* events, size_t count);

  /* Gives the ids of a text in UTF-8. Special tokens written in it count; `special`: with those
   * that the tokenizer adds around a text. */
  int32_t (*encode)(void* context, const char* text, size_t size, int32_t special,
                    mlcc_answer* answer);
  /* Gives the text of ids in UTF-8: special tokens skipped, broken UTF-8 as U+FFFD. */
  int32_t (*decode)(void* context, const int32_t* ids, size_t count, mlcc_answer* answer);
  /* Gives a JSON array of strings: the special tokens as they are written ("<|im_end|>"). */
  int32_t (*special_tokens)(void* context, mlcc_answer* answer);
  /* Gives, for every token from 0, a uint32_t of its length and its bytes. This version does not
   * ask: grammars are read by the model's tokenizer.json, if `path` of mlcc_python has llguidance. */
  int32_t (*token_bytes)(void* context, mlcc_answer* answer);

  /* The last of all: nothing of the engine uses `context` or calls back any more. */
  void (*released)(void* context);
} mlcc_host;

/* ---- The interpreter --------------------------------------------------------------------- */

/* Where Python's parts are. Everything but `size` and `abi` may be NULL. */
typedef struct mlcc_python {
  uint32_t size; /* sizeof(mlcc_python) */
  uint32_t abi;  /* MLCC_ABI_VERSION */
  /* The zip with mlcc's modules. NULL: mlcc.zip beside this library. */
  const char* zip;
  /* The folder with lib/pythonX.Y. NULL: found from where libpython lies. "": none, `path` says. */
  const char* home;
  /* More places of modules, behind those, with ':' between them. What `pip install --no-deps
   * --target FOLDER llguidance` made is one: then answers can be held to schemas and grammars. */
  const char* path;
  /* Hears what Python would print: warnings, and tracebacks of bugs. NULL: stderr. */
  void (*log)(void* context, const char* line);
  void* context;
} mlcc_python;

/* The MLCC_ABI_VERSION that this library was built with. */
MLCC_API uint32_t mlcc_abi_version(void);

/*
 * Start the interpreter; mlcc_create does it with all NULL where nobody has. It runs until the
 * process ends. Starting it again with equal paths is MLCC_OK and changes nothing.
 *
 * MLCC_BAD_ABI, MLCC_NO_PYTHON, MLCC_BAD_RUNTIME (may be tried again with another zip),
 * MLCC_OTHER_PYTHON (this process has one already: with other paths, or not from here).
 */
MLCC_API mlcc_code mlcc_start(const mlcc_python* python, char** error);

/* ---- Engines ----------------------------------------------------------------------------- */

/*
 * Begin to load a model. Returns at once; MLCC_EVENT_READY or MLCC_EVENT_FAILED tells the rest, and
 * requests made before wait for it.
 *
 * options, a JSON object:
 *   "model"            the folder that `mlcc compile` wrote; a must
 *   "context", "max_batch", "max_step_tokens", "max_rows"
 *                      at most so many tokens of a conversation, requests at once, tokens and rows
 *                      of a step; null: what model and memory allow
 *   "threads"          null: all cores that the process may use
 *   "device"           the number of the GPU; null: the best
 *   "memory_bytes"     weights, caches and workspace together; null: what the system has free
 *   "prefix_cache"     false: what was computed for one prompt is not used for others that begin
 *                      alike (true)
 *   "max_queue"        requests that may wait beyond those being answered (64)
 *   "parse_special"    true: control tokens count in messages (false)
 *   "unload_in_background"
 *                      true: mlcc_background gives the model's memory back (false)
 *   "max_unread_bytes" events that nobody took, before calls end with MLCC_STALLED (16 MiB)
 *
 * MLCC_BAD_ARGUMENT (NULL; what is wrong with the options comes by MLCC_EVENT_FAILED),
 * MLCC_BAD_ABI, MLCC_NO_CALLBACK (a tokenizer in part), and mlcc_start's.
 */
MLCC_API mlcc_code mlcc_create(const char* options, const mlcc_host* host, mlcc_engine* engine,
                               char** error);

/*
 * Ask. `headers` is a JSON object or NULL: then {"content-type": "application/json"}. `body` may be
 * NULL with size 0. The call's events tell the rest; `call` is written before any of them comes.
 *
 * MLCC_BAD_ARGUMENT, MLCC_CLOSED.
 */
MLCC_API mlcc_code mlcc_request(mlcc_engine engine, const char* method, const char* path,
                                const char* headers, const void* body, size_t size,
                                mlcc_call* call, char** error);

/*
 * Stop working for a call: it ends with MLCC_CANCELLED, unless it has ended before. Never fails: a
 * call that is not there any more is left alone.
 */
MLCC_API void mlcc_cancel(mlcc_engine engine, mlcc_call call);

/*
 * Wait for events, of an engine without the callback `events`. timeout_ms: < 0 = as long as it
 * takes, 0 = not at all. MLCC_OK: a batch of one or more; MLCC_TIMEOUT; MLCC_CLOSED: nothing more
 * will come, and every call has ended, also one whose END was not taken; MLCC_BAD_ARGUMENT: `batch`
 * is NULL or the engine has the callback.
 */
MLCC_API mlcc_code mlcc_poll(mlcc_engine engine, int32_t timeout_ms, const mlcc_batch** batch);

/* Give a batch back, with all that its events point to. NULL is nothing. */
MLCC_API void mlcc_batch_free(const mlcc_batch* batch);

/*
 * The counters, a JSON object (to free): {"state": "loading" | "ready" | "background" | "failed",
 * "trim": LEVEL, "engine": {...}}. MLCC_BAD_ARGUMENT (also: called within a tokenizer's callback),
 * MLCC_CLOSED.
 */
MLCC_API mlcc_code mlcc_stats(mlcc_engine engine, char** stats, char** error);

typedef enum mlcc_trim_level {
  MLCC_TRIM_NONE = 0,   /* as before: requests are taken */
  MLCC_TRIM_CACHE = 1,  /* forget the prefixes kept for the next request; their pages stay taken */
  MLCC_TRIM_REFUSE = 2  /* and answer new requests with 503, code "low_memory", until another trim;
                           what is being answered goes on */
} mlcc_trim_level;

/* Memory is short. level: a mlcc_trim_level. MLCC_BAD_ARGUMENT, MLCC_CLOSED. */
MLCC_API mlcc_code mlcc_trim(mlcc_engine engine, int32_t level);

/*
 * The app went out of sight (1) or came back (0). Changes something with "unload_in_background"
 * only: then the model's memory is given back, its calls fail with the API's error "in_background",
 * and new ones are answered so (503) until it is back; coming back loads it again, as mlcc_create.
 * MLCC_CLOSED.
 */
MLCC_API mlcc_code mlcc_background(mlcc_engine engine, int32_t background);

/*
 * Give the model back. Every call that has not ended ends with MLCC_CLOSED. When this returns, no
 * callback runs and none will come, unless it was called from within one: then they end by
 * themselves, `released` last. Idempotent; 0 is nothing.
 */
MLCC_API void mlcc_close(mlcc_engine engine);

/* Give a string back that came by an out-parameter. NULL is nothing. */
MLCC_API void mlcc_free(char* text);

#ifdef __cplusplus
}
#endif

#endif /* MLCC_H */
