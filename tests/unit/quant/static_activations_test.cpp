// Scales of activations that calibration has fixed: they travel in the file, reach the weights, and
// change the codes, but hardly what the model says.
#include <cmath>

#include "evaluate/perplexity.h"
#include "exec/model.h"
#include "format/qinfer_file.h"
#include "quant/calibration_data.h"
#include "test_util.h"

namespace qinfer::quant {
namespace {

constexpr const char* kDown = "model.layers.1.mlp.down_proj.weight";

Status QuantizeInt8(Host* host, std::shared_ptr<format::Checkpoint> checkpoint,
                    std::shared_ptr<Calibration> calibration, bool fixed, const std::string& path,
                    double* drift_perplexity) {
  QuantizeOptions options;
  options.recipe.linear = weights::ParseFormat("int8").value();
  options.recipe.static_activations = fixed;
  options.calibration = std::move(calibration);
  options.output_path = path;
  QINFER_ASSIGN_OR_RETURN(const auto work, QuantizeWork::Create(std::move(checkpoint),
                                                                std::move(options), host->context));
  QINFER_RETURN_IF_ERROR(Finish(work.get()));
  const observe::Report report = work->TakeReport();
  *drift_perplexity = report.Find("evaluation.perplexity")->AsNumber();
  return OkStatus();
}

StatusOr<std::shared_ptr<const exec::Model>> LoadModel(Host* host, const std::string& path) {
  QINFER_ASSIGN_OR_RETURN(const auto work, exec::LoadWork::Create(host->Open(path), host->context));
  QINFER_RETURN_IF_ERROR(Finish(work.get()));
  return work->TakeModel();
}

StatusOr<double> Perplexity(Host* host, std::shared_ptr<const exec::Model> model) {
  std::vector<int32_t> tokens;
  const std::string text = ReadText(TinyPath() + "/tiny-heldout.txt").substr(0, 12000);
  std::pmr::vector<int32_t> ids(&host->memory);
  QINFER_RETURN_IF_ERROR(model->tokenizer()->Encode(text, {}, &ids));
  tokens.assign(ids.begin(), ids.end());
  evaluate::PerplexityOptions options;
  options.context = 256;
  QINFER_ASSIGN_OR_RETURN(
      const auto work,
      evaluate::PerplexityWork::Create(std::move(model), nullptr, tokens, options, host->context));
  QINFER_RETURN_IF_ERROR(Finish(work.get()));
  const observe::Report report = work->TakeReport();
  return report.Find("perplexity")->AsNumber();
}

TEST(StaticActivations, TravelInTheFileAndAreUsed) {
  Host host;
  TemporaryFolder folder;
  auto checkpoint = host.Open(TinyPath());
  auto calibration = Calibrated(&host, checkpoint, 24, 256);
  double drift[2] = {}, perplexity[2] = {};
  std::shared_ptr<const exec::Model> models[2];
  for (const bool fixed : {false, true}) {
    const std::string path = folder.File(fixed ? "static.qinfer" : "dynamic.qinfer");
    ASSERT_TRUE(
        QuantizeInt8(&host, checkpoint, calibration, fixed, path, &drift[fixed ? 1 : 0]).ok());
    auto model = LoadModel(&host, path);
    ASSERT_TRUE(model.ok()) << model.status();
    models[fixed ? 1 : 0] = *model;
    auto found = Perplexity(&host, *model);
    ASSERT_TRUE(found.ok()) << found.status();
    perplexity[fixed ? 1 : 0] = *found;
  }
  // The calibrated range of one input, all the way to the weight that takes it.
  const InputStats* stats = calibration->data().Find(1, model::LinearRole::kDown);
  ASSERT_NE(stats, nullptr);
  const auto expected =
      static_cast<float>(calibration->data().InputRange(*stats).Magnitude() / 127.0);
  const format::QinferFile& file = *models[1]->checkpoint().qinfer();
  EXPECT_NE(file.features() >> format::kFeatureStaticActivations & 1, 0u);
  EXPECT_EQ(file.Find(kDown)->activation_scale, expected);
  EXPECT_EQ(models[1]->layer(1).feed_forward.down.activation_scale, expected);
  EXPECT_EQ(models[1]->layer(1).attention.q.activation_scale,
            models[1]->layer(1).attention.v.activation_scale);
  EXPECT_GT(models[1]->ends().head.activation_scale, 0.0f);
  EXPECT_EQ(models[0]->layer(1).feed_forward.down.activation_scale, 0.0f);
  // The weights are the same; what differs is how inputs become codes.
  std::printf("tiny-llama INT8: dynamic %.4f, static %.4f; held-out samples %.4f, %.4f\n",
              perplexity[0], perplexity[1], drift[0], drift[1]);
  EXPECT_NE(perplexity[0], perplexity[1]);
  EXPECT_NE(drift[0], drift[1]);
  EXPECT_NEAR(perplexity[1] / perplexity[0], 1.0, 0.05);
  EXPECT_NEAR(drift[1] / drift[0], 1.0, 0.05);

  // A conversion of the file keeps them.
  const std::string copy = folder.File("copy.qinfer");
  auto convert = ConvertWork::Create(host.Open(folder.File("static.qinfer")),
                                     io::CreateFile(copy).value(), host.context);
  ASSERT_TRUE(convert.ok()) << convert.status();
  ASSERT_TRUE(Finish(convert->get()).ok());
  auto again = LoadModel(&host, copy);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->layer(1).feed_forward.down.activation_scale, expected);
}

}  // namespace
}  // namespace qinfer::quant
