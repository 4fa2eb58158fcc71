// Helpers on Status that are not worth inlining.
#include "core/status.h"

namespace qinfer {

Status Annotate(const Status& status, const std::string& where) {
  if (status.ok()) return status;
  return Status(status.code(), StrCat(where, ": ", status.message()));
}

}  // namespace qinfer
