// The public source and target structs as objects of the inner library: paths, borrowed memory, the
// host's tables, and documents that replace what a checkpoint has. Formats are not looked into
// here.
#pragma once

#include <memory>
#include <string>

#include "api/runtime.h"
#include "format/checkpoint.h"
#include "io/source.h"
#include "qinfer/model.h"

namespace qinfer::api {

struct SourceParts {
  std::string path;                    // or
  std::shared_ptr<io::Source> source;  // memory or the host's table
  format::SideFiles documents;
  bool has_documents = false;

  const std::string& name() const { return source == nullptr ? path : source->name(); }
};

// Takes over the io table, whose `drop` is then called when the last user of `source` is gone, also
// when this fails.
// Documents are copied into `memory`.
StatusOr<SourceParts> ReadSource(const qinfer_source* source, Memory* memory);

// Opens it as bytes, whatever it is.
StatusOr<std::shared_ptr<io::Source>> OpenBytes(const SourceParts& parts, Memory* memory);

// Opens it as a checkpoint, with the documents in place.
StatusOr<std::shared_ptr<format::Checkpoint>> OpenModel(const SourceParts& parts,
                                                        const format::OpenOptions& options);

struct TargetParts {
  std::string path;                // or
  std::unique_ptr<io::Sink> sink;  // the host's table
};
// As ReadSource.
StatusOr<TargetParts> ReadTarget(const qinfer_target* target);
// The sink of either.
StatusOr<std::unique_ptr<io::Sink>> OpenSink(TargetParts parts);

}  // namespace qinfer::api
