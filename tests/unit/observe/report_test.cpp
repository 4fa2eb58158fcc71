// Report: building, paths, JSON out and in, and JSON that is none.
#include "observe/report.h"

#include <gtest/gtest.h>

#include <limits>

namespace qinfer::observe {
namespace {

Report Sample() {
  Report r;
  Report& perplexity = r["perplexity"];
  perplexity = 19.3227;
  r["tokens"] = 33280;
  r["seed"] = std::numeric_limits<uint64_t>::max();
  r["ok"] = true;
  r["name"] = "a \"quoted\"\n\x01 \xc3\xa9";
  Report& layers = r["layers"];
  for (int i = 0; i < 3; ++i) {
    Report& layer = layers.Append();
    layer["mse"] = 0.5 * i;
    layer["blk.0.weight"]["max"] = i;
  }
  r["none"].SetList();
  return r;
}

TEST(Report, KeepsKindsAndValues) {
  const Report r = Sample();
  EXPECT_EQ(r.kind(), Report::Kind::kObject);
  EXPECT_EQ(r.Find("perplexity")->AsNumber(), 19.3227);
  EXPECT_EQ(r.Find("perplexity")->AsInt(), 0);
  EXPECT_EQ(r.Find("tokens")->AsInt(), 33280);
  EXPECT_EQ(r.Find("tokens")->AsNumber(), 33280.0);
  EXPECT_EQ(r.Find("seed")->AsUint(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(r.Find("seed")->AsInt(), 0);
  EXPECT_GT(r.Find("seed")->AsNumber(), 1.8e19);
  EXPECT_TRUE(r.Find("ok")->AsBool());
  EXPECT_EQ(r.Find("layers")->size(), 3u);
  EXPECT_EQ(r.key(0), "perplexity");
}

TEST(Report, PathsReachEveryNodeAndNothingElse) {
  const Report r = Sample();
  EXPECT_EQ(r.Find("layers[2].mse")->AsNumber(), 1.0);
  EXPECT_EQ(r.Find("layers[1][\"blk.0.weight\"].max")->AsInt(), 1);
  EXPECT_EQ(r.Find(""), &r);
  for (const char* bad :
       {"layers[3]", "layers[-1]", "layers[]", "layers[0", "layers.mse", "perplexity.x", "x",
        "layers[0]mse", "layers[0].", ".tokens", "layers[1x]", "tokens[0]", "layers[\"0\"]"}) {
    EXPECT_EQ(r.Find(bad), nullptr) << bad;
  }
}

TEST(Report, ReferencesSurviveSiblings) {
  Report r;
  Report& first = r["first"];
  for (int i = 0; i < 100; ++i) r[StrCat("k", i)] = i;
  first = 7;
  EXPECT_EQ(r.Find("first")->AsInt(), 7);
}

TEST(Report, CopiesAreDeepAndAssignmentFromOwnChildWorks) {
  Report r = Sample();
  Report copy = r;
  copy["layers"].Append() = 1;
  EXPECT_EQ(r.Find("layers")->size(), 3u);
  r = *r.Find("layers[1]");
  EXPECT_EQ(r.Find("mse")->AsNumber(), 0.5);
  r["mse"] = "text";
  r["mse"] = r.Find("mse")->AsString();
  EXPECT_EQ(r.Find("mse")->AsString(), "text");
}

TEST(Report, JsonRoundTripIsExact) {
  const Report r = Sample();
  for (int indent : {0, 2}) {
    auto again = Report::FromJson(r.ToJson(indent));
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(again->ToJson(indent), r.ToJson(indent));
    EXPECT_EQ(again->Find("layers[2].mse")->kind(), Report::Kind::kNumber);
    EXPECT_EQ(again->Find("name")->AsString(), r.Find("name")->AsString());
    EXPECT_EQ(again->Find("perplexity")->AsNumber(), 19.3227);
  }
}

TEST(Report, JsonTextIsStable) {
  Report r;
  r["a"] = 1.0;
  r["b"].Append() = std::numeric_limits<double>::infinity();
  r["b"].Append() = "\xff\xc3";
  r["c"].SetObject();
  r["d"] = 1e300;
  EXPECT_EQ(r.ToJson(0),
            "{\"a\": 1.0, \"b\": [null, \"\xef\xbf\xbd\xef\xbf\xbd\"], \"c\": {}, \"d\": 1e+300}");
  Report small;
  small["x"].Append() = -5;
  EXPECT_EQ(small.ToJson(), "{\n  \"x\": [\n    -5\n  ]\n}");
}

TEST(Report, WhatIsNotJsonIsAnError) {
  for (const char* bad : {"", "{", "{\"a\":}", "[1,]", "nul", "\"\xff\"", "{} {}", "1e999"}) {
    auto r = Report::FromJson(bad);
    EXPECT_EQ(r.status().code(), absl::StatusCode::kDataLoss) << bad;
  }
  const std::string deep(Report::kMaxDepth, '[');
  EXPECT_TRUE(Report::FromJson(deep + std::string(Report::kMaxDepth, ']')).ok());
  auto r = Report::FromJson(StrCat("[", deep, std::string(Report::kMaxDepth + 1, ']')));
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.status().message().find("64 levels"), absl::string_view::npos);
}

}  // namespace
}  // namespace qinfer::observe
