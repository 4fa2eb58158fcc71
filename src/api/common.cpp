// Functions that need no handle: versions, names of statuses, the preparation of structs, UTF-8.
#include "api/structs.h"
#include "kernels/kernels.h"
#include "qinfer/qinfer.h"
#include "tokenizer/tokenizer.h"

using qinfer::api::InitStruct;

extern "C" {

uint32_t qinfer_version(void) {
  return static_cast<uint32_t>(QINFER_VERSION_MAJOR) << 24 |
         static_cast<uint32_t>(QINFER_VERSION_MINOR) << 16 |
         static_cast<uint32_t>(QINFER_VERSION_PATCH);
}

const char* qinfer_version_string(void) { return QINFER_VERSION_STRING; }

uint64_t qinfer_features(void) {
  uint64_t features = QINFER_FEATURE_QUANTIZE | QINFER_FEATURE_EVALUATE;
  using qinfer::kernels::HasKernels;
  using qinfer::kernels::Isa;
  if (HasKernels(Isa::kAvx2)) features |= QINFER_FEATURE_AVX2;
  if (HasKernels(Isa::kAvxVnni)) features |= QINFER_FEATURE_AVXVNNI;
  if (HasKernels(Isa::kAvx512)) features |= QINFER_FEATURE_AVX512;
  if (HasKernels(Isa::kNeon)) features |= QINFER_FEATURE_NEON;
  return features;
}

const char* qinfer_status_name(qinfer_status status) {
  switch (status) {
    case QINFER_OK:
      return "OK";
    case QINFER_PENDING:
      return "PENDING";
    case QINFER_END:
      return "END";
    case QINFER_E_MISUSE:
      return "E_MISUSE";
    case QINFER_E_NOMEM:
      return "E_NOMEM";
    case QINFER_E_BUDGET:
      return "E_BUDGET";
    case QINFER_E_IO:
      return "E_IO";
    case QINFER_E_FORMAT:
      return "E_FORMAT";
    case QINFER_E_CANCELLED:
      return "E_CANCELLED";
    case QINFER_E_DEVICE:
      return "E_DEVICE";
    case QINFER_E_UNSUPPORTED:
      return "E_UNSUPPORTED";
    case QINFER_E_ABI:
      return "E_ABI";
    case QINFER_E_INTERNAL:
      return "E_INTERNAL";
    case QINFER_E_BUSY:
      return "E_BUSY";
    default:
      return "UNKNOWN";
  }
}

size_t qinfer_utf8_complete(const char* text, size_t size) {
  if (text == nullptr) return 0;
  return size - qinfer::tokenizer::IncompleteUtf8Tail(std::string_view(text, size));
}

void qinfer_error_init(qinfer_error* error, size_t size) { InitStruct(error, size); }
void qinfer_allocator_init(qinfer_allocator* table, size_t size) { InitStruct(table, size); }
void qinfer_io_init(qinfer_io* table, size_t size) { InitStruct(table, size); }
void qinfer_write_io_init(qinfer_write_io* table, size_t size) { InitStruct(table, size); }
void qinfer_executor_init(qinfer_executor* table, size_t size) { InitStruct(table, size); }
void qinfer_runtime_options_init(qinfer_runtime_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_runtime_info_init(qinfer_runtime_info* info, size_t size) { InitStruct(info, size); }
void qinfer_memory_usage_init(qinfer_memory_usage* usage, size_t size) { InitStruct(usage, size); }
void qinfer_progress_init(qinfer_progress* progress, size_t size) { InitStruct(progress, size); }
void qinfer_source_init(qinfer_source* source, size_t size) { InitStruct(source, size); }
void qinfer_target_init(qinfer_target* target, size_t size) { InitStruct(target, size); }
void qinfer_load_options_init(qinfer_load_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_memory_plan_init(qinfer_memory_plan* plan, size_t size) { InitStruct(plan, size); }
void qinfer_model_info_init(qinfer_model_info* info, size_t size) { InitStruct(info, size); }
void qinfer_tensor_info_init(qinfer_tensor_info* info, size_t size) { InitStruct(info, size); }
void qinfer_render_options_init(qinfer_render_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_engine_options_init(qinfer_engine_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_generate_options_init(qinfer_generate_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_event_init(qinfer_event* event, size_t size) { InitStruct(event, size); }
void qinfer_calibration_options_init(qinfer_calibration_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_quantize_options_init(qinfer_quantize_options* options, size_t size) {
  InitStruct(options, size);
}
void qinfer_quantize_plan_init(qinfer_quantize_plan* plan, size_t size) { InitStruct(plan, size); }
void qinfer_perplexity_options_init(qinfer_perplexity_options* options, size_t size) {
  InitStruct(options, size);
}

}  // extern "C"
