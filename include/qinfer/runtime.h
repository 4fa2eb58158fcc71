/* runtime.h - the conventions of libqinfer's C API, its error model, the hooks through which a host
 * takes part, and the runtime that owns them. Nothing about models is declared here.
 *
 * Conventions, true for every function unless its comment says otherwise:
 *  - Names are qinfer_<noun>_<verb>. Inputs come first, then outputs, then `err`, always last.
 *  - Handles are opaque. A *_release function accepts NULL, and handles may be released in any
 *    order: what a child needs of its parent stays alive until the child is gone. The last release
 *    also ends every thread that the library has started.
 *  - A qinfer_status below zero is an error; 0 is success; above zero is a note (QINFER_PENDING,
 *    QINFER_END). On an error output handles are NULL, output structs, texts, counts
 *    and numbers are zero (struct_size stays), and token ids are QINFER_TOKEN_NONE, except where a
 *    needed buffer size is reported. That holds for wrong handles too; an output struct whose
 *    struct_size is wrong is left alone.
 *  - `err` is optional (NULL) and owned by the caller; it is filled on errors alone, except that
 *    an error struct with a wrong struct_size makes the call fail with QINFER_E_ABI.
 *  - Option structs are passed by pointer, begin with struct_size, and NULL means all defaults.
 * Zero means default in every field, for ever. A struct that is larger than the library knows is
 *    accepted when the unknown tail is zero; otherwise the status is QINFER_E_ABI, and `detail`
 *    says which of three things is wrong: QINFER_DETAIL_STRUCT_TOO_SMALL, _STRUCT_TOO_LARGE or
 *    _UNKNOWN_FIELDS. Every such struct has a *_INIT macro and an *_init function.
 *  - Text is UTF-8 with an explicit length; QINFER_STRLEN as length says that the text ends with a
 *    NUL. (NULL, 0) is the empty text. Inputs are copied before a function returns unless
 * "borrowed" is said.
 *  - Text and arrays that are returned by pointer live as long as the handle that they came from,
 *    unless said otherwise, and must not be freed.
 *  - Variable-size results are written into the caller's buffer: *out_size (or *out_count) is set
 * to what is needed. A NULL buffer with capacity 0 only asks. A buffer that is too small is left
 *    untouched: QINFER_E_MISUSE, detail QINFER_DETAIL_BUFFER_TOO_SMALL.
 *  - Threads: functions on a runtime, model, engine, task or report may be called from any thread,
 *    also at the same time. A session and a calibration take one caller at a time; a second one
 * gets QINFER_E_BUSY. A handle must not be used while or after it is released, nor in a child of
 *    fork(), where not even a release ends.
 *  - Callbacks must not unwind (no exceptions, no longjmp). Inside them only qinfer_task_cancel,
 *    qinfer_task_progress and functions that read a report may be called. No lock of the library is
 *    held that these need.
 *  - Sizes are bytes, times are nanoseconds, tokens are int32_t ids.
 *  - The library never aborts, exits, prints, reads the environment, installs handlers, or keeps
 *    process-wide state: several copies of it may live in one process.
 *  - Any function that takes a handle may return QINFER_E_MISUSE for NULL (QINFER_DETAIL_NULL), for
 *    a handle of another type (QINFER_DETAIL_BAD_HANDLE) and for a poisoned handle
 *    (QINFER_DETAIL_POISONED); any function may return QINFER_E_NOMEM, QINFER_E_ABI for its structs
 *    and QINFER_E_INTERNAL. Comments list the statuses beside these.
 */
#ifndef QINFER_RUNTIME_H
#define QINFER_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define QINFER_CALL __cdecl
#else
#define QINFER_CALL
#endif
/* How the functions are exported or imported; a build may define it itself. */
#ifndef QINFER_API
#if defined(__GNUC__)
#define QINFER_API __attribute__((visibility("default")))
#else
#define QINFER_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---- */
#define QINFER_VERSION_MAJOR 0
#define QINFER_VERSION_MINOR 1
#define QINFER_VERSION_PATCH 0
#define QINFER_VERSION_STRING "0.1.0"
/* Number of the binary interface, equal to the number in the library's SONAME. */
#define QINFER_ABI ((uint32_t)QINFER_VERSION_MAJOR)

/* Features that a build has, as bits of qinfer_features(); what this machine has is another
 * question (qinfer_runtime_info_get). */
#define QINFER_FEATURE_AVX2 ((uint64_t)1 << 0)
#define QINFER_FEATURE_AVX512 ((uint64_t)1 << 1) /* AVX-512 with VNNI */
#define QINFER_FEATURE_NEON ((uint64_t)1 << 2)
#define QINFER_FEATURE_QUANTIZE ((uint64_t)1 << 3)
#define QINFER_FEATURE_EVALUATE ((uint64_t)1 << 4)
#define QINFER_FEATURE_AVXVNNI ((uint64_t)1 << 5)

/* ---- Handles ---- */
typedef struct qinfer_runtime qinfer_runtime;         /* hooks, memory, threads; any thread */
typedef struct qinfer_model qinfer_model;             /* immutable; any thread */
typedef struct qinfer_calibration qinfer_calibration; /* statistics; one caller at a time */
typedef struct qinfer_engine qinfer_engine;           /* KV cache and forward pass; any thread */
typedef struct qinfer_session qinfer_session;         /* one sequence; one caller at a time */
typedef struct qinfer_task qinfer_task;               /* work in progress; any thread */
typedef struct qinfer_report qinfer_report;           /* a result document; any thread */

/* ---- Status ---- */
/* Codes are never renumbered; a retired one stays reserved. */
typedef int32_t qinfer_status;
#define QINFER_OK ((qinfer_status)0)
#define QINFER_PENDING ((qinfer_status)1)        /* not finished: call again */
#define QINFER_END ((qinfer_status)2)            /* nothing more will come */
#define QINFER_E_MISUSE ((qinfer_status)-1)      /* wrong argument, option or order of calls */
#define QINFER_E_NOMEM ((qinfer_status)-2)       /* the allocator has returned NULL */
#define QINFER_E_BUDGET ((qinfer_status)-3)      /* a limit that the host has set is exceeded */
#define QINFER_E_IO ((qinfer_status)-4)          /* reading or writing failed */
#define QINFER_E_FORMAT ((qinfer_status)-5)      /* a file's contents are wrong */
#define QINFER_E_CANCELLED ((qinfer_status)-6)   /* by qinfer_task_cancel */
#define QINFER_E_DEVICE ((qinfer_status)-7)      /* an accelerator failed */
#define QINFER_E_UNSUPPORTED ((qinfer_status)-8) /* valid, but not done by this build */
#define QINFER_E_ABI ((qinfer_status)-9)         /* struct or interface of another version */
#define QINFER_E_INTERNAL ((qinfer_status)-10)   /* a bug of the library; the handle is poisoned */
#define QINFER_E_BUSY ((qinfer_status)-11)       /* somebody else is inside; try again */

/* Details: what exactly, where a status leaves it open. Never renumbered; 0 = nothing to add. */
#define QINFER_DETAIL_NONE 0
#define QINFER_DETAIL_NULL 1             /* a pointer that must not be NULL is */
#define QINFER_DETAIL_BAD_HANDLE 2       /* not a live handle of this type */
#define QINFER_DETAIL_POISONED 3         /* an earlier call has failed inside: release the handle */
#define QINFER_DETAIL_STRUCT_TOO_SMALL 4 /* struct_size is below the first version's */
#define QINFER_DETAIL_STRUCT_TOO_LARGE 5 /* struct_size is above 4096: probably not set */
#define QINFER_DETAIL_UNKNOWN_FIELDS 6   /* a field that this library does not know is not zero */
#define QINFER_DETAIL_UNKNOWN_FLAGS 7    /* a flag bit that this library does not know */
#define QINFER_DETAIL_RESERVED 8         /* a reserved field is not zero */
#define QINFER_DETAIL_OPTION 9           /* an option's value is out of range or contradicts */
#define QINFER_DETAIL_BUFFER_TOO_SMALL 10 /* the needed size is in the size output */
#define QINFER_DETAIL_NOT_FINISHED 11     /* the task has no result yet */
#define QINFER_DETAIL_NO_RESULT 12        /* the task has no such result, or it has been taken */
#define QINFER_DETAIL_NOT_LOADED 13       /* the model was opened without this part */
#define QINFER_DETAIL_SESSION_IN_USE 14   /* a call or a task of this session is not finished */
#define QINFER_DETAIL_STEPPED 15          /* another thread, or the background, steps this task */
#define QINFER_DETAIL_REENTERED 16        /* called from inside a callback of the library */
#define QINFER_DETAIL_VERSION 17          /* QINFER_ABI of the header is not the library's */
#define QINFER_DETAIL_NO_SUCH_NODE 18     /* a report has nothing under that path */
#define QINFER_DETAIL_WRONG_KIND 19       /* a report's node is of another kind */
#define QINFER_DETAIL_CALLBACK 20         /* a callback of the host returned an error */

/* ---- Text ---- */
#define QINFER_STRLEN SIZE_MAX /* as a length: the text ends with a NUL */

/* UTF-8 text that needs no NUL. This struct never changes. */
typedef struct qinfer_str {
  const char* data;
  size_t size;
} qinfer_str;

/* ---- Errors ---- */
/* What went wrong and where: file, tensor, byte offset, option, and what to do. The message is for
 * people, the codes are for programs. No memory is allocated for it. */
typedef struct qinfer_error {
  uint32_t struct_size;
  qinfer_status status;
  int32_t detail;    /* QINFER_DETAIL_... */
  int32_t os_error;  /* errno, or what a host's callback returned; 0 = none */
  char message[496]; /* UTF-8, always NUL-terminated; a long one has " ... " in the middle */
} qinfer_error;
#define QINFER_ERROR_INIT                          \
  {                                                \
    (uint32_t)sizeof(qinfer_error), 0, 0, 0, { 0 } \
  }

/* ---- Hooks ---- */
/* Where memory comes from. Both functions or neither; any thread, also at the same time. Large
 * blocks only (weights, caches, workspaces, token arrays): small bookkeeping uses malloc. */
typedef struct qinfer_allocator {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  /* `align` is a power of two of at most 4096; NULL = no memory. */
  void*(QINFER_CALL* alloc)(void* user, size_t size, size_t align);
  /* With the size and alignment that `ptr` was allocated with; `ptr` is never NULL. */
  void(QINFER_CALL* release)(void* user, void* ptr, size_t size, size_t align);
} qinfer_allocator;
#define QINFER_ALLOCATOR_INIT \
  { (uint32_t)sizeof(qinfer_allocator), 0, NULL, NULL, NULL }

/* A file to read that the host supplies. Functions return QINFER_OK or any error. They may be
 * called from any thread, also at the same time. */
typedef struct qinfer_io {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  qinfer_status(QINFER_CALL* size)(void* user, uint64_t* out_size); /* required; fixed while open */
  /* Required. Fills all of dst[0, n) from `offset` on, or fails. */
  qinfer_status(QINFER_CALL* read_at)(void* user, uint64_t offset, void* dst, size_t n);
  /* Optional: a pointer to [offset, offset + n) that stays valid until `drop`, 64-byte aligned for
   * offset 0. The bytes must not change. */
  qinfer_status(QINFER_CALL* map)(void* user, uint64_t offset, uint64_t n, const void** out);
  /* Optional: nobody reads any more. Called exactly once for every function of this API that was
   * given the table and accepted its struct_size, also when that function or its task fails. */
  void(QINFER_CALL* drop)(void* user);
} qinfer_io;
#define QINFER_IO_INIT \
  { (uint32_t)sizeof(qinfer_io), 0, NULL, NULL, NULL, NULL, NULL }

/* A file to write that the host supplies. One caller at a time. */
typedef struct qinfer_write_io {
  uint32_t struct_size;
  uint32_t reserved;
  void* user;
  /* Required. Offsets need not be in order; a byte may be written more than once. */
  qinfer_status(QINFER_CALL* write_at)(void* user, uint64_t offset, const void* src, size_t n);
  qinfer_status(QINFER_CALL* commit)(void* user); /* optional: all is written, make it durable */
  void(QINFER_CALL* abandon)(void* user);         /* optional: failed or cancelled, discard it */
  void(QINFER_CALL* drop)(void* user);            /* optional: exactly once, as for qinfer_io */
} qinfer_write_io;
#define QINFER_WRITE_IO_INIT \
  { (uint32_t)sizeof(qinfer_write_io), 0, NULL, NULL, NULL, NULL, NULL }

/* The host's job system instead of our threads. */
typedef struct qinfer_executor {
  uint32_t struct_size;
  uint32_t max_concurrency; /* bodies that may run at once, at least 1 */
  void* user;
  /* Runs body(context, i) for every i in [0, count), each once, and returns when all have returned.
   * They may run one after the other, in any order, on any threads: bodies never wait for each
   * other. One call at a time per runtime. */
  void(QINFER_CALL* parallel_for)(void* user, uint32_t count,
                                  void(QINFER_CALL* body)(void* context, uint32_t index),
                                  void* context);
} qinfer_executor;
#define QINFER_EXECUTOR_INIT \
  { (uint32_t)sizeof(qinfer_executor), 0, NULL, NULL }

#define QINFER_LOG_ERROR 1
#define QINFER_LOG_WARNING 2
#define QINFER_LOG_INFO 3
#define QINFER_LOG_DEBUG 4
/* `text` has no line end and is valid during the call. Any thread. */
typedef void(QINFER_CALL* qinfer_log_fn)(void* user, int32_t level, const char* text, size_t size);

/* ---- Runtime ---- */
/* Instruction sets, as a cap for tests and comparisons. */
#define QINFER_ISA_AUTO 0u /* the best that this machine has */
#define QINFER_ISA_REF 1u  /* portable code */
#define QINFER_ISA_AVX2 2u
#define QINFER_ISA_AVX512 3u
#define QINFER_ISA_NEON 4u
#define QINFER_ISA_AVXVNNI 5u /* AVX2 with AVX-VNNI; below AVX512 */

/* Every task that is begun goes to the background at once, as with qinfer_task_run. */
#define QINFER_RUNTIME_BACKGROUND_TASKS ((uint64_t)1 << 0)

#define QINFER_SPIN_NEVER UINT32_MAX

typedef struct qinfer_runtime_options {
  uint32_t struct_size;
  uint32_t threads; /* 0 = the processors that this process may use; ignored with `executor` */
  uint64_t flags;   /* QINFER_RUNTIME_... */
  const qinfer_allocator* allocator; /* NULL = malloc; copied */
  const qinfer_executor* executor;   /* NULL = threads of our own; copied */
  qinfer_log_fn log;                 /* NULL = silence */
  void* log_user;
  uint64_t host_bytes_limit; /* of memory that we allocate and files that we map; 0 = none */
  uint32_t log_level;        /* most detailed level wanted; 0 = QINFER_LOG_WARNING */
  uint32_t cpu_isa_cap;      /* QINFER_ISA_... */
  uint32_t spin_us; /* idle time after which our threads park; 0 = 30 us; QINFER_SPIN_NEVER */
  uint32_t reserved;
  const void* next; /* reserved, must be NULL */
} qinfer_runtime_options;
#define QINFER_RUNTIME_OPTIONS_INIT \
  { (uint32_t)sizeof(qinfer_runtime_options), 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL }

typedef struct qinfer_runtime_info {
  uint32_t struct_size;
  uint32_t threads; /* that work, the caller's included; with an executor its max_concurrency */
  uint32_t cpu_isa; /* QINFER_ISA_..., in use */
  uint32_t reserved;
  qinfer_str cpu_isa_name; /* "avx512"; static */
} qinfer_runtime_info;
#define QINFER_RUNTIME_INFO_INIT                                \
  {                                                             \
    (uint32_t)sizeof(qinfer_runtime_info), 0, 0, 0, { NULL, 0 } \
  }

typedef struct qinfer_memory_usage {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t used_bytes;   /* allocated now */
  uint64_t mapped_bytes; /* file maps now */
  uint64_t peak_bytes;   /* highest sum of the two since the start or qinfer_runtime_reset_peak */
  uint64_t limit_bytes;  /* host_bytes_limit; 0 = none */
} qinfer_memory_usage;
#define QINFER_MEMORY_USAGE_INIT \
  { (uint32_t)sizeof(qinfer_memory_usage), 0, 0, 0, 0, 0 }

/** The library's version: major << 24 | minor << 16 | patch. Any thread. @since 0.1 */
QINFER_API uint32_t QINFER_CALL qinfer_version(void);

/** The library's version as text, "0.1.0"; static, NUL-terminated. Any thread. @since 0.1 */
QINFER_API const char* QINFER_CALL qinfer_version_string(void);

/** QINFER_FEATURE_... bits of this build. Any thread. @since 0.1 */
QINFER_API uint64_t QINFER_CALL qinfer_features(void);

/** The name of a status without its prefix ("OK", "E_FORMAT"; "UNKNOWN" for other numbers); static,
 * NUL-terminated. Any thread. @since 0.1 */
QINFER_API const char* QINFER_CALL qinfer_status_name(qinfer_status status);

/** How many bytes at the beginning of text[0, size) end with a complete UTF-8 character: a stream
 * shows so many and keeps the rest. 0 for NULL. Any thread. @since 0.1 */
QINFER_API size_t QINFER_CALL qinfer_utf8_complete(const char* text, size_t size);

/** Prepare a struct as its *_INIT macro does: zero `size` bytes (sizeof of the caller's struct) and
 * set struct_size. NULL is ignored. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_error_init(qinfer_error* error, size_t size);
QINFER_API void QINFER_CALL qinfer_allocator_init(qinfer_allocator* table, size_t size);
QINFER_API void QINFER_CALL qinfer_io_init(qinfer_io* table, size_t size);
QINFER_API void QINFER_CALL qinfer_write_io_init(qinfer_write_io* table, size_t size);
QINFER_API void QINFER_CALL qinfer_executor_init(qinfer_executor* table, size_t size);
QINFER_API void QINFER_CALL qinfer_runtime_options_init(qinfer_runtime_options* options,
                                                        size_t size);
QINFER_API void QINFER_CALL qinfer_runtime_info_init(qinfer_runtime_info* info, size_t size);
QINFER_API void QINFER_CALL qinfer_memory_usage_init(qinfer_memory_usage* usage, size_t size);

/** Makes a runtime: everything that a host configures once.
 * @param abi      QINFER_ABI of the header that the program was compiled with
 * @param options  NULL = defaults; tables in it are copied, their `user` pointers must stay valid
 *                 until the last handle that belongs to this runtime is released
 * @param out      the new runtime, owned by the caller; not NULL
 * @return OK; E_ABI (other interface); E_MISUSE (unknown flags, half a table); E_UNSUPPORTED (the
 *         processor cannot run cpu_isa_cap); E_NOMEM (no threads)
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_runtime_create(uint32_t abi,
                                                           const qinfer_runtime_options* options,
                                                           qinfer_runtime** out, qinfer_error* err);

/** One more owner of a runtime, who will release it too; returns `runtime`. NULL stays NULL. Any
 * thread. @since 0.1 */
QINFER_API qinfer_runtime* QINFER_CALL qinfer_runtime_retain(qinfer_runtime* runtime);

/** Gives up a runtime. NULL is fine. Models, engines and tasks of it go on working. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_runtime_release(qinfer_runtime* runtime);

/** Threads and instruction set in use. @param out not NULL, struct_size set. @return OK.
 * Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_runtime_info_get(const qinfer_runtime* runtime,
                                                             qinfer_runtime_info* out,
                                                             qinfer_error* err);

/** Memory of everything that belongs to the runtime. @param out not NULL, struct_size set.
 * @return OK. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_runtime_memory(const qinfer_runtime* runtime,
                                                           qinfer_memory_usage* out,
                                                           qinfer_error* err);

/** Lets peak_bytes begin anew at what is in use now. @return OK. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_runtime_reset_peak(qinfer_runtime* runtime,
                                                               qinfer_error* err);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_RUNTIME_H */
