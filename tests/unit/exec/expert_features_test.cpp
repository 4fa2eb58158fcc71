// Every feature of experts and of latent attention matters: a specification that ignores one no
// longer agrees with the recorded logits. That every key is read: expert_keys_test.cpp.
#include "features_testing.h"

namespace qinfer::exec {
namespace {

using model::AttentionKind;
using model::FeedForwardKind;
using model::FeedForwardSpec;
using model::LayerSpec;
using model::ModelSpec;
using model::RopeScaling;
using model::RouterScoring;

Change Experts(void (*change)(FeedForwardSpec*)) {
  return [change](ModelSpec* spec) {
    for (LayerSpec& layer : spec->layers) {
      if (layer.feed_forward.kind == FeedForwardKind::kExperts) change(&layer.feed_forward);
    }
  };
}

const Ignored kScale = {"factor of routed experts",
                        Experts([](FeedForwardSpec* f) { f->routed_scale = 1.0f; })};
const Ignored kNormalize = {"sum of the weights",
                            Experts([](FeedForwardSpec* f) { f->normalize = !f->normalize; })};
const Ignored kCorrection = {"correction bias",
                             Experts([](FeedForwardSpec* f) { f->router_correction = {}; })};
const Ignored kGroups = {"limit to groups", Experts([](FeedForwardSpec* f) {
                           f->groups = f->groups_used = 0;
                           f->group_score_top = 1;
                         })};
const Ignored kGroupsUsed = {"number of groups",
                             Experts([](FeedForwardSpec* f) { ++f->groups_used; })};
const Ignored kGroupScore = {"score of a group", Experts([](FeedForwardSpec* f) {
                               f->group_score_top = f->group_score_top == 1 ? 2 : 1;
                             })};
const Ignored kShared = {"shared experts", Experts([](FeedForwardSpec* f) {
                           f->intermediate = 0;
                           f->gate = f->up = f->down = f->shared_gate = {};
                         })};
const Ignored kSharedGate = {"gate of the shared expert",
                             Experts([](FeedForwardSpec* f) { f->shared_gate = {}; })};
const Ignored kScoring = {"scoring", Experts([](FeedForwardSpec* f) {
                            f->scoring = f->scoring == RouterScoring::kSigmoid
                                             ? RouterScoring::kSoftmax
                                             : RouterScoring::kSigmoid;
                          })};
const Ignored kScoringChosen = {"softmax over all", Experts([](FeedForwardSpec* f) {
                                  f->scoring = RouterScoring::kSoftmaxChosen;
                                })};
const Ignored kUsed = {"number of experts", Experts([](FeedForwardSpec* f) { --f->experts_used; })};
const Ignored kActivation = {"activation of experts", Experts([](FeedForwardSpec* f) {
                               f->activation = kernels::Activation::kGeluTanh;
                             })};
const Ignored kInterleaved = {"order of rotated pairs", EachRope([](model::RopeSpec* r) {
                                r->interleaved = !r->interleaved;
                              })};
const Ignored kTheta = {"theta", EachRope([](model::RopeSpec* r) { r->theta *= 3.0; })};
const Ignored kRopeScaling = {
    "scaling of the rope", EachRope([](model::RopeSpec* r) { r->scaling = RopeScaling::kNone; })};
const Ignored kRopeFactor = {"factor of the rope",
                             EachRope([](model::RopeSpec* r) { r->factor = 2.0; })};
const Ignored kBetaSlow = {"beta_slow", EachRope([](model::RopeSpec* r) { r->beta_slow = 0.1; })};
const Ignored kBetaFast = {"beta_fast", EachRope([](model::RopeSpec* r) { r->beta_fast = 0.3; })};
const Ignored kAttentionFactor = {"mscale in the rope",
                                  EachRope([](model::RopeSpec* r) { r->attention_factor = 1.0; })};
const Ignored kSoftmaxScale = {"mscale in the softmax", EachLayer([](LayerSpec* l) {
                                 l->attention.scale =
                                     1.0f / std::sqrt(static_cast<float>(l->attention.head_dim));
                               })};
const Ignored kScaleOfNope = {"rotated part in the scale", EachLayer([](LayerSpec* l) {
                                const auto& a = l->attention;
                                const float part = static_cast<float>(a.head_dim - a.rope_dim) /
                                                   static_cast<float>(a.head_dim);
                                l->attention.scale /= std::sqrt(part);
                              })};
const Ignored kNoRope = {"rotation", EachLayer([](LayerSpec* l) { l->attention.rope = -1; })};
// Norms of the latent and of q_a cannot be left out of a specification; another layer's are as good
// a mistake.
const Ignored kKvNorm = {"norm of the latent", [](ModelSpec* s) {
                           std::swap(s->layers[0].attention.kv_a_norm,
                                     s->layers[1].attention.kv_a_norm);
                         }};
const Ignored kQaNorm = {"norm of q_a", [](ModelSpec* s) {
                           std::swap(s->layers[0].attention.q_a_norm,
                                     s->layers[1].attention.q_a_norm);
                         }};
const Ignored kEpsilon = {"epsilon", [](ModelSpec* s) { s->norm_epsilon = 0.1f; }};
const Ignored kQBias = {"bias of q", EachLayer([](LayerSpec* l) { l->attention.q_bias = {}; })};
const Ignored kKBias = {"bias of k", EachLayer([](LayerSpec* l) { l->attention.k_bias = {}; })};
const Ignored kVBias = {"bias of v", EachLayer([](LayerSpec* l) { l->attention.v_bias = {}; })};
const Ignored kOBias = {"bias of o", EachLayer([](LayerSpec* l) { l->attention.o_bias = {}; })};
const Ignored kQNorm = {"norm of q", EachLayer([](LayerSpec* l) { l->attention.q_norm = {}; })};
const Ignored kKNorm = {"norm of k", EachLayer([](LayerSpec* l) { l->attention.k_norm = {}; })};
const Ignored kWindow = {"window", EachLayer([](LayerSpec* l) { l->attention.window = 0; })};

const std::vector<FeatureCase>& Cases() {
  static const auto* const cases = new std::vector<FeatureCase>{
      {"deepseek-v3-small",
       "",
       {kScale,       kNormalize,  kCorrection, kGroups,     kGroupsUsed,      kGroupScore,
        kShared,      kScoring,    kUsed,       kActivation, kInterleaved,     kTheta,
        kRopeScaling, kRopeFactor, kBetaSlow,   kBetaFast,   kAttentionFactor, kSoftmaxScale,
        kScaleOfNope, kNoRope,     kKvNorm,     kQaNorm,     kEpsilon}},
      {"deepseek-v3-small", "mscale", {kAttentionFactor, kSoftmaxScale}},
      {"deepseek-v3-small", "halves", {kInterleaved}},
      {"deepseek-v3-small", "one-group", {kScale, kCorrection}},
      {"deepseek-v3-small", "sums", {kNormalize, kScale}},
      {"deepseek-v3-biases",
       "",
       {kOBias,
        kScale,
        kCorrection,
        {"bias of q_a", EachLayer([](LayerSpec* l) { l->attention.q_a_bias = {}; })},
        {"bias of kv_a", EachLayer([](LayerSpec* l) { l->attention.kv_a_bias = {}; })}}},
      {"deepseek-v2-small",
       "",
       {kScale, kNormalize, kGroups, kGroupsUsed, kGroupScore, kShared, kScoring, kScoringChosen,
        kUsed, kInterleaved, kTheta, kScaleOfNope, kKvNorm}},
      {"deepseek-v2-small", "greedy", {kScale, {"choice among all", Experts([](FeedForwardSpec* f) {
                                                  f->groups = 3;
                                                  f->groups_used = 1;
                                                })}}},
      {"mixtral-small", "", {kNormalize, kScoring, kUsed, kActivation, kTheta, kInterleaved}},
      {"mixtral-small", "window", {kWindow}},
      {"qwen2-moe-small",
       "",
       {kNormalize, kScoring, kScoringChosen, kShared, kSharedGate, kUsed, kQBias, kKBias, kVBias,
        kTheta}},
      {"qwen2-moe-small", "norm", {kNormalize}},
      {"qwen3-moe-small", "", {kNormalize, kScoring, kUsed, kQNorm, kKNorm, kTheta}},
      {"qwen3-moe-small", "raw", {kNormalize, kScoringChosen}},
      {"glm4-moe-small",
       "",
       {kScale,
        kNormalize,
        kCorrection,
        kGroups,
        kGroupsUsed,
        kShared,
        kScoring,
        kUsed,
        kQNorm,
        kKNorm,
        kQBias,
        kKBias,
        kVBias,
        kTheta,
        {"partial rotation", EachRope([](model::RopeSpec* r) { r->dims *= 2; })}}},
      {"glm4-moe-small", "one-group", {kScale, kCorrection}},
  };
  return *cases;
}

TEST(ExpertFeatures, IgnoringOneBreaksAgreement) { ExpectAllMatter(Cases()); }

}  // namespace
}  // namespace qinfer::exec
