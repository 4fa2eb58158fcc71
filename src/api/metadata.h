// What a model is, from its headers: the figures behind qinfer_model_info and qinfer_tensor_info,
// and the same as reports.
#pragma once

#include <string>

#include "api/model.h"
#include "observe/report.h"
#include "qinfer/model.h"

namespace qinfer::api {

// The texts in `out` live as long as the model.
void FillModelInfo(const ModelState& model, qinfer_model_info* out);

struct TensorDescription {
  const format::TensorInfo* tensor = nullptr;
  std::string_view source_type;
  std::string format;  // of the computation; empty where none
  uint32_t import = QINFER_IMPORT_NONE;
  uint64_t bytes = 0, offset = 0;
  bool has_checksum = false;
  uint64_t checksum = 0;
};
TensorDescription DescribeTensor(const format::Checkpoint& checkpoint,
                                 const format::TensorInfo& tensor);

std::string_view ContainerName(uint32_t container);
const char* ImportName(uint32_t import);
std::string HexChecksum(uint64_t checksum);  // 16 digits

observe::Report InfoReport(const ModelState& model);
observe::Report TensorsReport(const ModelState& model);

}  // namespace qinfer::api
