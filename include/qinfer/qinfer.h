/* qinfer.h - the whole stable C API of libqinfer. It only includes its parts, each of which also
 * compiles alone; anything that is not declared in them is private. Start reading in runtime.h,
 * which states the conventions that hold for every function. */
#ifndef QINFER_QINFER_H
#define QINFER_QINFER_H

#include "qinfer/evaluate.h" /* perplexity and divergence */
#include "qinfer/generate.h" /* sessions and generation */
#include "qinfer/kv.h"       /* engines and their key-value caches */
#include "qinfer/model.h"    /* loading, metadata, tokenizer, chat template */
#include "qinfer/observe.h"  /* tasks and reports */
#include "qinfer/quantize.h" /* calibration, conversion, quantization */
#include "qinfer/runtime.h"  /* conventions, errors, hooks, runtime */

#endif /* QINFER_QINFER_H */
