// Calibration files (docs/quantization.md gives every byte): header with magic, version and
// checksum, then the model's key, options, origin, statistics and held-out samples.
#include <cmath>

#include "core/checked.h"
#include "quant/bytes.h"
#include "quant/calibration_data.h"
#include "quant/fingerprint.h"

namespace qinfer::quant {
namespace {

constexpr char kMagic[8] = {'Q', 'I', 'N', 'F', 'C', 'A', 'L', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;
// Far above any real file: a table of statistics of 10,000 layers.
constexpr uint64_t kMaxFileBytes = 8ull << 30;

void PutSamples(const std::vector<Sample>& samples, ByteWriter* out) {
  out->Put(static_cast<uint32_t>(samples.size()));
  for (const Sample& sample : samples) {
    out->Put(static_cast<uint32_t>(sample.tokens.size()));
    out->PutBytes(sample.tokens.data(), sample.tokens.size() * sizeof(int32_t));
  }
}

Status GetSamples(ByteReader* in, uint32_t vocab_size, std::vector<Sample>* samples) {
  uint32_t count = 0;
  QINFER_RETURN_IF_ERROR(in->Get(&count));
  if (count > CalibrationData::kHeldOut) {
    return FormatError(StrCat(std::string(in->name()), ": ", count, " held-out samples; at most ",
                              CalibrationData::kHeldOut, " are possible"));
  }
  samples->resize(count);
  for (Sample& sample : *samples) {
    uint32_t tokens = 0;
    QINFER_RETURN_IF_ERROR(in->Get(&tokens));
    if (tokens > in->remaining() / sizeof(int32_t)) {
      return FormatError(StrCat(std::string(in->name()), ": a sample of ", tokens,
                                " tokens at byte ", in->offset(), " does not fit"));
    }
    sample.tokens.resize(tokens);
    QINFER_RETURN_IF_ERROR(in->GetBytes(sample.tokens.data(), tokens * sizeof(int32_t)));
    for (int32_t token : sample.tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= vocab_size) {
        return FormatError(StrCat(std::string(in->name()), ": token ", token,
                                  " of a held-out sample is outside the vocabulary of ",
                                  vocab_size));
      }
    }
  }
  return OkStatus();
}

template <typename Enum>
Status GetEnum(ByteReader* in, uint8_t last, const char* what, Enum* value) {
  uint8_t raw = 0;
  QINFER_RETURN_IF_ERROR(in->Get(&raw));
  if (raw > last) {
    return FormatError(StrCat(std::string(in->name()), ": ", what, " before byte ", in->offset(),
                              " is ", raw, "; at most ", last, " is known"));
  }
  *value = static_cast<Enum>(raw);
  return OkStatus();
}

}  // namespace

std::string CalibrationBytes(const CalibrationData& data) {
  ByteWriter body;
  const ModelKey& key = data.key();
  body.PutString(key.architecture);
  body.Put(key.hidden_size);
  body.Put(key.vocab_size);
  body.Put(key.layers);
  body.Put(key.shape);
  body.Put(key.weights);
  const CalibrationOptions& options = data.options();
  body.Put(options.samples);
  body.Put(options.sample_tokens);
  body.Put(options.seed);
  body.Put(static_cast<uint8_t>(options.activations));
  body.Put(static_cast<uint8_t>(options.weights));
  body.Put(static_cast<uint8_t>(options.range));
  body.Put(options.ema_alpha);
  body.Put(options.percentile);
  const Origin& origin = data.origin();
  body.Put(origin.texts);
  body.Put(origin.text_bytes);
  body.Put(origin.token_lists);
  body.Put(origin.samples);
  body.Put(origin.tokens);
  body.Put(static_cast<uint8_t>(origin.self_generated ? 1 : 0));
  body.Put(static_cast<uint32_t>(data.stats().size()));
  for (const InputStats& stats : data.stats()) {
    body.Put(stats.layer);
    body.Put(static_cast<uint8_t>(stats.role));
    body.Put(stats.moments.channels());
    body.Put(stats.moments.tokens());
    body.PutBytes(stats.moments.sums().data(), stats.moments.channels() * sizeof(double));
    stats.observer->Save(&body);
  }
  PutSamples(data.held_out(), &body);
  ByteWriter out;
  out.PutBytes(kMagic, sizeof(kMagic));
  out.Put(kVersion);
  out.Put<uint32_t>(0);  // feature bits
  out.Put(static_cast<uint64_t>(body.bytes().size()));
  out.Put(HashText(body.bytes()));
  out.PutBytes(body.bytes().data(), body.bytes().size());
  return out.Take();
}

Status CalibrationData::Save(io::Sink* sink) const {
  if (running_) return BusyError("a run of this calibration is in progress");
  if (stats_.empty()) {
    return MisuseError("the calibration has no statistics yet: run it before it is saved");
  }
  const std::string bytes = CalibrationBytes(*this);
  QINFER_RETURN_IF_ERROR(sink->WriteAt(0, AsBytes(bytes)));
  return sink->Commit();
}

StatusOr<std::shared_ptr<Calibration>> Calibration::Load(
    const std::shared_ptr<io::Source>& source, std::shared_ptr<const format::Checkpoint> checkpoint,
    const exec::Context& context) {
  if (source->size() < kHeaderBytes || source->size() > kMaxFileBytes) {
    return FormatError(
        StrCat(source->name(), " is not a calibration file: it has ", source->size(), " bytes"));
  }
  QINFER_ASSIGN_OR_RETURN(Buffer buffer,
                          Buffer::Create(context.memory, source->size(), "calibration file"));
  QINFER_RETURN_IF_ERROR(source->ReadAt(0, absl::MakeSpan(buffer.as<uint8_t>(), buffer.size())));
  return LoadCalibration(std::string_view(buffer.as<char>(), buffer.size()), source->name(),
                         std::move(checkpoint), context);
}

StatusOr<std::shared_ptr<Calibration>> LoadCalibration(
    std::string_view bytes, const std::string& name,
    std::shared_ptr<const format::Checkpoint> checkpoint, const exec::Context& context) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return FormatError(StrCat(name, " is not a calibration file: wrong magic"));
  }
  ByteReader header(bytes.substr(sizeof(kMagic), kHeaderBytes - sizeof(kMagic)), name);
  uint32_t version = 0, features = 0;
  uint64_t body_bytes = 0, checksum = 0;
  QINFER_RETURN_IF_ERROR(header.Get(&version));
  QINFER_RETURN_IF_ERROR(header.Get(&features));
  QINFER_RETURN_IF_ERROR(header.Get(&body_bytes));
  QINFER_RETURN_IF_ERROR(header.Get(&checksum));
  if (version != kVersion || features != 0) {
    return UnsupportedError(StrCat(name, ": calibration file version ", version, " with features ",
                                   features, "; this library reads version ", kVersion));
  }
  const std::string_view body = bytes.substr(kHeaderBytes);
  if (body.size() != body_bytes) {
    return FormatError(StrCat(name, ": the calibration file is cut or damaged: it has ",
                              body.size(), " bytes of contents, ", body_bytes, " expected"));
  }
  if (HashText(body) != checksum) {
    return FormatError(StrCat(name,
                              ": the calibration file is damaged: its checksum does not fit "
                              "its ",
                              body.size(), " bytes of contents"));
  }
  ByteReader in(body, name);
  ModelKey key;
  QINFER_RETURN_IF_ERROR(in.GetString(256, &key.architecture));
  QINFER_RETURN_IF_ERROR(in.Get(&key.hidden_size));
  QINFER_RETURN_IF_ERROR(in.Get(&key.vocab_size));
  QINFER_RETURN_IF_ERROR(in.Get(&key.layers));
  QINFER_RETURN_IF_ERROR(in.Get(&key.shape));
  QINFER_RETURN_IF_ERROR(in.Get(&key.weights));
  CalibrationOptions options;
  QINFER_RETURN_IF_ERROR(in.Get(&options.samples));
  QINFER_RETURN_IF_ERROR(in.Get(&options.sample_tokens));
  QINFER_RETURN_IF_ERROR(in.Get(&options.seed));
  QINFER_RETURN_IF_ERROR(GetEnum(&in, 2, "the observer of activations", &options.activations));
  QINFER_RETURN_IF_ERROR(GetEnum(&in, 2, "the observer of weights", &options.weights));
  QINFER_RETURN_IF_ERROR(GetEnum(&in, 3, "the range method", &options.range));
  QINFER_RETURN_IF_ERROR(in.Get(&options.ema_alpha));
  QINFER_RETURN_IF_ERROR(in.Get(&options.percentile));
  Status valid = ValidateCalibrationOptions(options);
  if (!valid.ok()) return FormatError(StrCat(name, ": ", std::string(valid.message())));
  QINFER_ASSIGN_OR_RETURN(model::ModelSpec spec, model::SpecFromCheckpoint(*checkpoint));
  if (ShapeFingerprint(spec) != key.shape) {
    return MisuseError(StrCat(name, " belongs to another model: ", key.architecture, ", ",
                              key.layers, " layers, width ", key.hidden_size, "; ",
                              checkpoint->name(), " is ", spec.architecture, ", ",
                              spec.layers.size(), " layers, width ", spec.hidden_size));
  }
  auto data = std::make_shared<CalibrationData>(std::move(checkpoint), std::move(spec),
                                                std::move(key), options, context);
  QINFER_RETURN_IF_ERROR(in.Get(&data->origin_.texts));
  QINFER_RETURN_IF_ERROR(in.Get(&data->origin_.text_bytes));
  QINFER_RETURN_IF_ERROR(in.Get(&data->origin_.token_lists));
  QINFER_RETURN_IF_ERROR(in.Get(&data->origin_.samples));
  QINFER_RETURN_IF_ERROR(in.Get(&data->origin_.tokens));
  uint8_t self_generated = 0;
  QINFER_RETURN_IF_ERROR(GetEnum(&in, 1, "the self-generated flag", &self_generated));
  data->origin_.self_generated = self_generated != 0;
  QINFER_ASSIGN_OR_RETURN(data->stats_, data->NewStats());
  uint32_t inputs = 0;
  QINFER_RETURN_IF_ERROR(in.Get(&inputs));
  if (inputs != data->stats_.size()) {
    return FormatError(
        StrCat(name, ": statistics of ", inputs, " inputs; the model has ", data->stats_.size()));
  }
  for (InputStats& stats : data->stats_) {
    uint32_t layer = 0, channels = 0;
    uint8_t role = 0;
    uint64_t tokens = 0;
    QINFER_RETURN_IF_ERROR(in.Get(&layer));
    QINFER_RETURN_IF_ERROR(in.Get(&role));
    QINFER_RETURN_IF_ERROR(in.Get(&channels));
    QINFER_RETURN_IF_ERROR(in.Get(&tokens));
    if (layer != stats.layer || role != static_cast<uint8_t>(stats.role) ||
        channels != stats.moments.channels()) {
      return FormatError(StrCat(name, ": statistics before byte ", in.offset(),
                                " are of another input than expected (layer ", layer, ", ",
                                channels, " channels)"));
    }
    stats.moments.set_tokens(tokens);
    QINFER_RETURN_IF_ERROR(
        in.GetBytes(stats.moments.mutable_sums()->data(), size_t{channels} * sizeof(double)));
    for (double sum : stats.moments.sums()) {
      if (!std::isfinite(sum) || sum < 0.0) {
        return FormatError(StrCat(name, ": a sum of squares before byte ", in.offset(),
                                  " is negative or not finite"));
      }
    }
    QINFER_RETURN_IF_ERROR(stats.observer->Load(&in));
  }
  QINFER_RETURN_IF_ERROR(GetSamples(&in, data->spec_.vocab_size, &data->held_out_));
  if (in.remaining() != 0) {
    return FormatError(StrCat(name, ": ", in.remaining(), " bytes too many at the end"));
  }
  return std::shared_ptr<Calibration>(std::move(data));
}

}  // namespace qinfer::quant
