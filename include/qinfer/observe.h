/* observe.h - tasks, which are work in progress, and reports, which are result documents. What a
 * task does and what a report holds is declared where they are made.
 *
 * The life of a task: a *_begin function makes it and does no work. Work happens inside
 * qinfer_task_step and qinfer_task_wait (and qinfer_generate_next), on the calling thread and the
 * runtime's, until the task is finished, has failed or is cancelled; then its result is taken, and
 * it is released. qinfer_task_run hands it to a thread of the runtime instead. Of all tasks of a
 * runtime one steps at a time; others wait for their turn within their budget. */
#ifndef QINFER_OBSERVE_H
#define QINFER_OBSERVE_H

#include "qinfer/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tasks ---- */
#define QINFER_BUDGET_MIN ((uint64_t)0)    /* the smallest unit of work */
#define QINFER_BUDGET_UNLIMITED UINT64_MAX /* until finished */

#define QINFER_TASK_LOAD 1u
#define QINFER_TASK_VERIFY 2u
#define QINFER_TASK_CALIBRATE 3u
#define QINFER_TASK_CONVERT 4u
#define QINFER_TASK_QUANTIZE 5u
#define QINFER_TASK_PREFILL 6u
#define QINFER_TASK_GENERATE 7u
#define QINFER_TASK_PERPLEXITY 8u

typedef struct qinfer_progress {
  uint32_t struct_size;
  uint32_t kind;        /* QINFER_TASK_... */
  qinfer_status status; /* PENDING, OK when finished, or the error it ended with */
  uint32_t background;  /* 1: the runtime steps it */
  uint64_t done, total; /* in units of the task's own choice; total 0 = not known */
  qinfer_str phase;     /* what it is at, "quantize"; static, may be empty */
  uint64_t step_ns;     /* time spent inside steps so far */
} qinfer_progress;
#define QINFER_PROGRESS_INIT \
  { (uint32_t)sizeof(qinfer_progress), 0, 0, 0, 0, 0, {NULL, 0}, 0 }

/** As every *_init: zeroes `size` bytes and sets struct_size. Any thread. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_progress_init(qinfer_progress* progress, size_t size);

/** Works on a task for about `budget_ns`, in units of about 0.1 ms, at least one unit unless
 * another task has the turn for that long. Partial work is kept.
 * Waiting for the disk is a step of its own, before which this returns with the progress in phase
 * "sync".
 * @param budget_ns  QINFER_BUDGET_MIN (0) = one unit; QINFER_BUDGET_UNLIMITED = until finished
 * @return OK: finished, the result can be taken; PENDING: call again; E_CANCELLED; E_BUSY (another
 *         thread steps this task or the background does: nothing was done); else the error that
 *         ended the task, the same one at every later call
 * Any thread, one at a time. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_step(qinfer_task* task, uint64_t budget_ns,
                                                      qinfer_error* err);

/** Works on a task, or waits while others do, until it is finished or `timeout_ns` has passed.
 * @param timeout_ns  0 = only ask; UINT64_MAX = no limit
 * @return as qinfer_task_step, but never E_BUSY for another stepper; PENDING = time is up
 * Any thread, also several. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_wait(qinfer_task* task, uint64_t timeout_ns,
                                                      qinfer_error* err);

/** Hands a task to a thread of the runtime, which shares it fairly among such tasks. From then on
 * qinfer_task_step gives E_BUSY; wait, progress, cancel and qinfer_generate_next work as before.
 * Calling it twice is fine. @return OK; E_NOMEM (no thread). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_run(qinfer_task* task, qinfer_error* err);

/** How far a task is; never waits. @param out not NULL, struct_size set. @return OK.
 * Any thread, also inside callbacks. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_progress(const qinfer_task* task,
                                                          qinfer_progress* out, qinfer_error* err);

/** Asks a task to end. Idempotent, never waits, NULL is fine. A step in progress ends within a few
 * units (some milliseconds; a host's callback is not interrupted). The step or wait that ends it
 * returns E_CANCELLED, and then, or when it is released, everything is as it was at the last
 * committed state: a session keeps the tokens that it had and is free for other calls, no output
 * file exists. A task that has already finished stays finished. Any thread, also inside callbacks.
 * @since 0.1 */
QINFER_API void QINFER_CALL qinfer_task_cancel(qinfer_task* task);

/** Takes the model of a finished load task. @param out the model, owned by the caller; not NULL.
 * @return OK; E_MISUSE (QINFER_DETAIL_NOT_FINISHED, QINFER_DETAIL_NO_RESULT: other kind of task, or
 * already taken). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_take_model(qinfer_task* task, qinfer_model** out,
                                                            qinfer_error* err);

/** Takes the report of a finished task of another kind than load, prefill, generate and calibrate.
 * Parameters and statuses as qinfer_task_take_model. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_take_report(qinfer_task* task, qinfer_report** out,
                                                             qinfer_error* err);

/** Takes the calibration that a finished calibration task has filled: a second handle of the
 * statistics that it was begun with, released on its own. Parameters and statuses as
 * qinfer_task_take_model. Any thread.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_task_take_calibration(qinfer_task* task,
                                                                  qinfer_calibration** out,
                                                                  qinfer_error* err);

/** Cancels a task that is not finished, waits for the end of a step in progress in the background,
 * and gives the task up. NULL is fine. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_task_release(qinfer_task* task);

/* ---- Reports ---- */
/* A report is a tree. Nodes are found by path: "perplexity", "layers[3].hidden.cosine"; the empty
 * path is the root. Paths are (text, length) with QINFER_STRLEN for NUL-terminated text. */
#define QINFER_REPORT_NULL 0u
#define QINFER_REPORT_BOOL 1u
#define QINFER_REPORT_INT 2u
#define QINFER_REPORT_NUMBER 3u
#define QINFER_REPORT_STRING 4u
#define QINFER_REPORT_LIST 5u
#define QINFER_REPORT_OBJECT 6u

/** The kind of a node. @param out_kind QINFER_REPORT_...; not NULL.
 * @return OK; E_MISUSE (QINFER_DETAIL_NO_SUCH_NODE). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_kind(const qinfer_report* report,
                                                        const char* path, size_t path_size,
                                                        uint32_t* out_kind, qinfer_error* err);

/** Items of a list or members of an object. @param out_count not NULL. @return OK; E_MISUSE
 * (QINFER_DETAIL_NO_SUCH_NODE, QINFER_DETAIL_WRONG_KIND). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_size(const qinfer_report* report,
                                                        const char* path, size_t path_size,
                                                        size_t* out_count, qinfer_error* err);

/** The name of member `index` of an object, in the order of the document.
 * @param out_key lives as long as the report; not NULL. @return as qinfer_report_size; E_MISUSE
 * (QINFER_DETAIL_NO_SUCH_NODE) for an index out of range. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_key(const qinfer_report* report,
                                                       const char* path, size_t path_size,
                                                       size_t index, qinfer_str* out_key,
                                                       qinfer_error* err);

/** A bool as 0 or 1. @param out not NULL. @return as qinfer_report_size. Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_bool(const qinfer_report* report,
                                                        const char* path, size_t path_size,
                                                        int32_t* out, qinfer_error* err);

/** An integer, or a number that is whole. @param out not NULL. @return as qinfer_report_size. Any
 * thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_int(const qinfer_report* report,
                                                       const char* path, size_t path_size,
                                                       int64_t* out, qinfer_error* err);

/** A number or an integer. @param out not NULL. @return as qinfer_report_size. Any thread.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_double(const qinfer_report* report,
                                                          const char* path, size_t path_size,
                                                          double* out, qinfer_error* err);

/** A string. @param out lives as long as the report; not NULL. @return as qinfer_report_size. Any
 * thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_string(const qinfer_report* report,
                                                          const char* path, size_t path_size,
                                                          qinfer_str* out, qinfer_error* err);

#define QINFER_RENDER_JSON 0u         /* indented by two */
#define QINFER_RENDER_JSON_COMPACT 1u /* one line */
#define QINFER_RENDER_TABLE 2u        /* text for a terminal; of quantizations and conversions */
#define QINFER_RENDER_HTML 3u         /* one self-contained page; of the same */

/** The whole report as text. @param form QINFER_RENDER_...
 * @param out UTF-8 with a NUL behind its size, made once and kept as long as the report; not NULL
 * @return OK; E_MISUSE (unknown form); E_UNSUPPORTED (this report has no such form). Any thread.
 * @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_render(qinfer_report* report, uint32_t form,
                                                          qinfer_str* out, qinfer_error* err);

/** A report from JSON text, for example one that was stored before. A quantization report stays
 * one.
 * @param runtime not NULL; @param out owned by the caller; not NULL
 * @return OK; E_FORMAT (not JSON, or too deep). Any thread. @since 0.1 */
QINFER_API qinfer_status QINFER_CALL qinfer_report_parse(qinfer_runtime* runtime, const char* json,
                                                         size_t json_size, qinfer_report** out,
                                                         qinfer_error* err);

/** Gives up a report. NULL is fine. @since 0.1 */
QINFER_API void QINFER_CALL qinfer_report_release(qinfer_report* report);

#ifdef __cplusplus
}
#endif
#endif /* QINFER_OBSERVE_H */
