/* The shipped model, in each of the three formats, cut and damaged in every way that a disk or an
 * attacker might: every attempt ends in a status and a message, without a crash, a hang, or more
 * than 64 MB of memory beyond the file's size. */
#include <stdint.h>

#include "gguf_image.h"
#include "harness.h"

enum {
  kFormats = 3,
  kHeaderStride = kThreadSanitizer ? 397 : 1,
  kDataStride = kThreadSanitizer ? 1048576 : 16384,
  kDamages = kThreadSanitizer ? 30 : 1500
};

typedef struct image {
  const char* name;
  memory_file file;
  size_t header; /* bytes before the tensors' data */
} image;

static memory_file config, tokenizer, tokenizer_config;
static qinfer_runtime* runtime;
static uint64_t worst_memory;

static qinfer_str text_of(const memory_file* file) {
  qinfer_str text = {(const char*)file->bytes, file->size};
  return text;
}

/* Opens the first `size` bytes; a copy of exactly that size, so that a sanitizer sees the first
 * byte past the end. */
static qinfer_status open_bytes(const unsigned char* bytes, size_t size, uint32_t parts, int copy,
                                qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_load_options load = QINFER_LOAD_OPTIONS_INIT;
  qinfer_memory_usage usage = QINFER_MEMORY_USAGE_INIT;
  qinfer_model* model = NULL;
  void* exact = copy ? aligned_alloc(64, (size + 63) / 64 * 64 + 64) : NULL;
  if (copy) memcpy(exact, bytes, size);
  source.data = copy ? exact : bytes;
  source.data_size = size;
  source.name.data = "damaged";
  source.name.size = 7;
  source.config_json = text_of(&config);
  source.tokenizer_json = text_of(&tokenizer);
  source.tokenizer_config_json = text_of(&tokenizer_config);
  load.parts = parts;
  qinfer_runtime_reset_peak(runtime, NULL);
  qinfer_error_init(err, sizeof *err);
  const qinfer_status status = qinfer_model_load(runtime, &source, &load, &model, err);
  qinfer_runtime_memory(runtime, &usage, NULL);
  if (usage.peak_bytes > worst_memory) worst_memory = usage.peak_bytes;
  CHECK(usage.peak_bytes <= size + (64u << 20));
  CHECK((status == QINFER_OK) == (model != NULL));
  if (status < 0 && err->message[0] == '\0') CHECK(!"an error without a message");
  qinfer_model_release(model);
  free(exact);
  return status;
}

static void test_truncation(const image* image) {
  qinfer_error err = QINFER_ERROR_INIT;
  size_t opened = 0;
  for (size_t size = 0; size <= image->header; size += kHeaderStride, ++opened) {
    const qinfer_status status = open_bytes(image->file.bytes, size, QINFER_PARTS_HEADER, 0, &err);
    if (status >= 0) fail_at(image->name, (int)size, "a cut header was accepted", NULL);
  }
  for (size_t size = image->header + 1; size < image->file.size; size += kDataStride, ++opened) {
    if (open_bytes(image->file.bytes, size, QINFER_PARTS_HEADER, 0, &err) >= 0) {
      fail_at(image->name, (int)size, "cut data was accepted", NULL);
    }
  }
  if (open_bytes(image->file.bytes, image->file.size - 1, QINFER_PARTS_ALL, 0, &err) >= 0) {
    fail_at(image->name, 0, "a file short of its last byte was accepted", NULL);
  }
  printf("%s: %zu truncations\n", image->name, opened);
}

/* A small generator, so that the damage is the same in every run. */
static uint32_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void test_damage(const image* image) {
  qinfer_error err = QINFER_ERROR_INIT;
  uint64_t state = 7;
  size_t refused = 0;
  const size_t rounds = kDamages;
  unsigned char* bytes = aligned_alloc(64, (image->file.size + 63) / 64 * 64);
  memcpy(bytes, image->file.bytes, image->file.size);
  for (size_t round = 0; round < rounds; ++round) {
    /* One to four bits of the header, or one of its 8-byte words set to an absurd number. */
    size_t at[4];
    unsigned char old[4][8];
    const size_t edits = 1 + next_random(&state) % 4;
    for (size_t e = 0; e < edits; ++e) {
      at[e] = next_random(&state) % (image->header - 8);
      memcpy(old[e], bytes + at[e], 8);
      const uint32_t kind = next_random(&state) % 4;
      static const uint64_t absurd[4] = {UINT64_MAX, (uint64_t)1 << 62, 0x7fffffff, 0};
      if (kind == 0)
        memcpy(bytes + at[e], &absurd[next_random(&state) % 4], 8);
      else
        bytes[at[e]] ^= (unsigned char)(1u << next_random(&state) % 8);
    }
    if (open_bytes(bytes, image->file.size, QINFER_PARTS_HEADER, 0, &err) < 0) ++refused;
    for (size_t e = edits; e-- > 0;) memcpy(bytes + at[e], old[e], 8);
  }
  CHECK(memcmp(bytes, image->file.bytes, image->file.size) == 0);
  CHECK(refused > 0);
  /* A few in full: the weights are read, and the vocabulary is made. */
  for (size_t round = 0; round < 12; ++round) {
    const size_t place = next_random(&state) % image->header;
    const unsigned char before = bytes[place];
    bytes[place] ^= (unsigned char)(1u << next_random(&state) % 8);
    open_bytes(bytes, image->file.size, QINFER_PARTS_ALL, 0, &err);
    bytes[place] = before;
  }
  printf("%s: %zu of %zu damaged headers refused\n", image->name, refused, rounds);
  free(bytes);
}

/* Weights that are not finite: loading or the first generation says so; nothing crashes. */
static void test_not_finite(const image* image) {
  qinfer_error err = QINFER_ERROR_INIT;
  unsigned char* bytes = aligned_alloc(64, (image->file.size + 63) / 64 * 64);
  memcpy(bytes, image->file.bytes, image->file.size);
  const size_t data = (image->header + 63) / 64 * 64;
  for (size_t i = data; i + 1 < image->file.size; i += 2) {
    bytes[i] = 0x00;
    bytes[i + 1] = 0x7e; /* a NaN in F16 */
  }
  qinfer_source source = QINFER_SOURCE_INIT;
  qinfer_model* model = NULL;
  qinfer_engine* engine = NULL;
  qinfer_session* session = NULL;
  qinfer_task* task = NULL;
  source.data = bytes;
  source.data_size = image->file.size;
  source.config_json = text_of(&config);
  source.tokenizer_json = text_of(&tokenizer);
  source.tokenizer_config_json = text_of(&tokenizer_config);
  qinfer_status status = qinfer_model_load(runtime, &source, NULL, &model, &err);
  if (status == QINFER_OK) {
    const int32_t token = 5;
    CHECK_OK(qinfer_engine_create(model, NULL, &engine, &err));
    CHECK_OK(qinfer_session_create(engine, &session, &err));
    CHECK_OK(qinfer_session_append(session, &token, 1, &err));
    CHECK_OK(qinfer_session_prefill_begin(session, &task, &err));
    status = qinfer_task_wait(task, UINT64_MAX, &err);
  }
  CHECK(status == QINFER_E_FORMAT);
  printf("%s: %s\n", image->name, err.message);
  qinfer_task_release(task);
  qinfer_session_release(session);
  qinfer_engine_release(engine);
  qinfer_model_release(model);
  free(bytes);
}

static void test_odd_files(const image* safetensors) {
  qinfer_error err = QINFER_ERROR_INIT;
  CHECK_STATUS(open_bytes(NULL, 0, QINFER_PARTS_ALL, 0, &err) < 0 ? QINFER_E_FORMAT : QINFER_OK,
               QINFER_E_FORMAT);
  unsigned char zeros[4096] = {0};
  CHECK(open_bytes(zeros, sizeof zeros, QINFER_PARTS_ALL, 1, &err) == QINFER_E_FORMAT);
  CHECK(open_bytes((const unsigned char*)"not a model at all, just some text", 34, QINFER_PARTS_ALL,
                   1, &err) == QINFER_E_FORMAT);
  CHECK(open_bytes(config.bytes, config.size, QINFER_PARTS_ALL, 1, &err) < 0);
  /* The right weights under a configuration of another size. */
  memory_file saved = config;
  config.bytes = malloc(saved.size);
  memcpy(config.bytes, saved.bytes, saved.size);
  char* hidden = strstr((char*)config.bytes, "\"hidden_size\": 256");
  CHECK(hidden != NULL);
  if (hidden != NULL) memcpy(hidden, "\"hidden_size\": 320", 18);
  CHECK(open_bytes(safetensors->file.bytes, safetensors->file.size, QINFER_PARTS_ALL, 0, &err) ==
        QINFER_E_FORMAT);
  free(config.bytes);
  config = saved;
}

/* Splits the shipped model's header from its data. */
static size_t safetensors_header(const memory_file* file) {
  uint64_t size = 0;
  memcpy(&size, file->bytes, 8);
  return (size_t)size + 8;
}

int main(int argc, char** argv) {
  const char* folder = model_path();
  if (folder == NULL) {
    printf("skipped: the sample model is absent\n");
    return 77;
  }
  char path[4096];
  image images[kFormats] = {{"safetensors", {0}, 0}, {"gguf", {0}, 0}, {"qinfer", {0}, 0}};
  qinfer_error err = QINFER_ERROR_INIT;
  snprintf(path, sizeof(path), "%s/config.json", folder);
  CHECK(read_file(path, &config));
  snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
  CHECK(read_file(path, &tokenizer));
  snprintf(path, sizeof(path), "%s/tokenizer_config.json", folder);
  CHECK(read_file(path, &tokenizer_config));
  snprintf(path, sizeof(path), "%s/model.safetensors", folder);
  CHECK(read_file(path, &images[0].file));
  runtime = make_runtime();
  qinfer_model* model = load_model(runtime);
  if (model == NULL || failures != 0) return 1;

  images[0].header = safetensors_header(&images[0].file);
  images[1].file = gguf_image(model, &images[0].file, 1, &images[1].header);
  qinfer_write_io writer = memory_writer(&images[2].file);
  qinfer_target target = QINFER_TARGET_INIT;
  qinfer_task* task = NULL;
  target.io = &writer;
  CHECK_OK(qinfer_convert_begin(model, &target, &task, &err));
  CHECK_OK(qinfer_task_wait(task, UINT64_MAX, &err));
  qinfer_task_release(task);
  images[2].header = safetensors_header(&images[2].file);

  const char* only = argc > 1 ? argv[1] : NULL;
  for (int i = 0; i < kFormats; ++i) {
    if (only != NULL && strcmp(only, images[i].name) != 0) continue;
    CHECK_OK(open_bytes(images[i].file.bytes, images[i].file.size, QINFER_PARTS_ALL, 0, &err));
    test_truncation(&images[i]);
    test_damage(&images[i]);
    test_not_finite(&images[i]);
  }
  test_odd_files(&images[0]);

  size_t header = 0;
  memory_file without_merges = gguf_image(model, &images[0].file, 0, &header);
  CHECK(open_bytes(without_merges.bytes, without_merges.size, QINFER_PARTS_VOCABULARY, 0, &err) ==
        QINFER_E_FORMAT);
  printf("no merges: %s\n", err.message);
  memory_file_free(&without_merges);
  printf("highest memory in use: %.1f MB\n", 1e-6 * (double)worst_memory);
  for (int i = 0; i < kFormats; ++i) memory_file_free(&images[i].file);
  qinfer_model_release(model);
  qinfer_runtime_release(runtime);
  return failures != 0;
}
