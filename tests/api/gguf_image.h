/* A GGUF image of a Llama checkpoint, made in memory for tests: the same tensors under GGUF's
 * names, and its vocabulary. The file is valid; its query and key rows are not permuted as GGUF
 * wants, so what it generates means nothing. */
#ifndef QINFER_TESTS_API_GGUF_IMAGE_H
#define QINFER_TESTS_API_GGUF_IMAGE_H

#include "harness.h"

/* `checkpoint`: the whole .safetensors file that `model` was opened from. `merges` = 0 leaves the
 * merges out. *header_bytes: up to the data. */
memory_file gguf_image(const qinfer_model* model, const memory_file* checkpoint, int merges,
                       size_t* header_bytes);

#endif
