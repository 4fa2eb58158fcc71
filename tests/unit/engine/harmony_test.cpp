// HarmonySplitter: channels of messages at every way of cutting the text, missing markers, prompts
// that end in a header or a message; and generations of a model whose vocabulary has the markers.
#include "engine/harmony.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "tests/unit/engine/channel_pieces.h"
#include "tests/unit/engine/test_model.h"

namespace qinfer::engine {
namespace {

// After `prompt`; in up to three parts, cut everywhere, and byte by byte.
void ExpectAfter(const std::string& prompt, const std::string& text, const std::string& expected) {
  const auto split = [&](const std::vector<std::string>& parts) {
    HarmonySplitter splitter;
    splitter.Begin(prompt);
    Pieces pieces;
    for (const std::string& part : parts) splitter.Push(part, &pieces);
    splitter.Flush(&pieces);
    return Shown(pieces);
  };
  ASSERT_EQ(split({text}), expected) << prompt << " | " << text;
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      ASSERT_EQ(split({text.substr(0, a), text.substr(a, b - a), text.substr(b)}), expected)
          << prompt << " | " << text << " cut at " << a << ", " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(split(bytes), expected) << text;
}

constexpr char kPrompt[] = "<|start|>user<|message|>Why?<|end|><|start|>assistant";

TEST(HarmonySplitter, Channels) {
  ExpectAfter(kPrompt,
              "<|channel|>analysis<|message|>Hm. 1 < 2<|end|><|start|>assistant<|channel|>final"
              "<|message|>So.<|return|>",
              "{Hm. 1 < 2}So.");
  ExpectAfter(kPrompt, "<|channel|>commentary<|message|>A plan.<|end|>", "{A plan.}");
  ExpectAfter(kPrompt,
              " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
              "{{}}");
  ExpectAfter(kPrompt,
              "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
              "{{\"a\":1}}");
  ExpectAfter(kPrompt, "<|channel|>final <|constrain|>json<|message|>[]", "[]");
  ExpectAfter(kPrompt, "<|channel|>other<|message|>x", "{x}");
  ExpectAfter(kPrompt, "<|message|>No channel.<|end|>", "No channel.");
  ExpectAfter(kPrompt, "<|channel|>final<|message|>\xe2\x82\xac<|e", "\xe2\x82\xac<|e");
}

TEST(HarmonySplitter, MissingMarkers) {
  // No end before the next message, no start, a message in a message, an end twice.
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "{a}b");
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>a<|start|>assistant<|message|>b", "{a}b");
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>a<|message|>b", "{ab}");
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>a<|end|><|end|>b", "{a}b");
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>never ended <|en", "{never ended <|en}");
  // Ends inside a header.
  ExpectAfter(kPrompt, "<|channel|>analysis<|message|>a<|end|><|start|>assi", "{a}");
  ExpectAfter(kPrompt, "<|channel|>fin", "");
  ExpectAfter(kPrompt, "", "");
}

TEST(HarmonySplitter, TextThatIsNoHarmony) {
  ExpectAfter("", "plain <text> <| and", "plain <text> <| and");
  ExpectAfter("", "a<|channel|>analysis<|message|>b", "a{b}");
  ExpectAfter(kPrompt, "Plain words.", "Plain words.");
  const std::string longer(300, 'x');
  ExpectAfter("", "<|channel|>" + longer + "<|message|>y", longer + "y");
}

TEST(HarmonySplitter, PromptsEndAnywhere) {
  ExpectAfter("<|start|>assistant<|channel|>", "analysis<|message|>a<|end|>", "{a}");
  ExpectAfter("<|start|>assistant<|channel|>ana", "lysis<|message|>a<|end|>", "{a}");
  ExpectAfter("<|start|>assistant<|channel|>final", "<|message|>a<|end|>", "a");
  ExpectAfter("<|start|>assistant<|channel|>analysis<|message|>", "a<|end|>b", "{a}b");
  ExpectAfter("<|start|>assistant<|channel|>analysis<|message|>So far", " and on<|end|>b",
              "{ and on}b");
  ExpectAfter("<|start|>assistant<|channel|>final<|message|>So far", " and on", " and on");
  ExpectAfter("<|start|>", "assistant<|channel|>analysis<|message|>a", "{a}");
  ExpectAfter("<|start|>", "assistant", "");
}

TEST(HarmonySplitter, TheStartMayBeGiven) {
  for (const Channel start : {Channel::kText, Channel::kReasoning}) {
    HarmonySplitter splitter(start);
    Pieces pieces;
    splitter.Push("a<|end|>b", &pieces);
    EXPECT_EQ(Shown(pieces), start == Channel::kText ? "ab" : "{a}b");
    EXPECT_EQ(splitter.channel(), Channel::kText);
  }
}

TEST(HarmonySplitter, TextIsShownAsSoonAsItCanBe) {
  HarmonySplitter splitter;
  Pieces pieces;
  splitter.Push("<|channel|>analysis<|message|>abc<|", &pieces);
  EXPECT_EQ(Shown(pieces), "{abc}");
  EXPECT_EQ(splitter.channel(), Channel::kReasoning);
  splitter.Push("x", &pieces);
  EXPECT_EQ(Shown(pieces), "{abc<|x}");
}

// A folder with the sample model, some of whose tokens are the markers.
class MarkedModel {
 public:
  MarkedModel() {
    using nlohmann::json;
    namespace fs = std::filesystem;
    std::string name = (fs::temp_directory_path() / "qinfer-harmony-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    for (const auto& file : fs::directory_iterator(qinfer::testing::TinyLlamaPath())) {
      if (file.path().filename() == "tokenizer.json") continue;
      fs::create_symlink(fs::absolute(file.path()), fs::path(folder_) / file.path().filename());
    }
    std::ifstream in(qinfer::testing::TinyLlamaPath() + "/tokenizer.json");
    json document = json::parse(in);
    json& vocab = document["model"]["vocab"];
    json& merges = document["model"]["merges"];
    // The last tokens, of which no others are made.
    const size_t size = vocab.size();
    std::map<size_t, std::string> by_id;
    for (const auto& [token, id] : vocab.items()) by_id[id.get<size_t>()] = token;
    // <|end|> is there.
    for (const char* marker :
         {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|return|>"}) {
      const size_t id = size - ++markers_;
      vocab.erase(by_id[id]);
      vocab[marker] = id;
      merges.erase(merges.size() - 1);
      json token = document["added_tokens"][0];
      token["id"] = id;
      token["content"] = marker;
      token["special"] = true;
      document["added_tokens"].push_back(token);
    }
    std::ofstream(folder_ + "/tokenizer.json") << document.dump();
    model_ = qinfer::testing::LoadTestModel(folder_);
  }
  ~MarkedModel() { std::filesystem::remove_all(folder_); }
  qinfer::testing::TestModel* operator->() const { return model_.get(); }

 private:
  std::string folder_;
  size_t markers_ = 0;
  std::unique_ptr<qinfer::testing::TestModel> model_;
};

struct Outcome {
  std::string text, reasoning;
  Channel last = Channel::kText;
};

Outcome Generate(const MarkedModel& test, const std::string& prompt, GenerateOptions options) {
  Outcome outcome;
  auto engine = Engine::Create(test->model, test->context, {});
  EXPECT_TRUE(engine.ok()) << engine.status();
  auto session = (*engine)->NewSession();
  EXPECT_TRUE(session.ok());
  std::pmr::vector<int32_t> ids;
  EXPECT_TRUE(test->model->tokenizer()->Encode(prompt, {}, &ids).ok());
  EXPECT_TRUE((*session)->Append(ids).ok());
  options.sampling.greedy = true;
  options.ignore_eos = true;
  options.max_tokens = 12;
  auto generation = (*session)->Generate(options);
  EXPECT_TRUE(generation.ok()) << generation.status();
  EXPECT_TRUE((*generation)->Step(Deadline()).ok());
  for (Event event; (*generation)->NextEvent(&event);) {
    (event.channel == Channel::kText ? outcome.text : outcome.reasoning) += event.text;
    outcome.last = event.channel;
  }
  return outcome;
}

TEST(HarmonyGeneration, ByTheMarkersOfTheVocabulary) {
  MarkedModel test;
  ASSERT_NE(test->model, nullptr) << test->status;
  const auto* tokenizer = test->model->tokenizer();
  ASSERT_EQ(HarmonyMarkers(*tokenizer).size(), 7u);
  GenerateOptions split;
  split.reasoning.emplace();
  split.reasoning->channels = true;
  const std::string head = "<|start|>user<|message|>And it came<|end|><|start|>assistant";
  const std::string analysis = head + "<|channel|>analysis<|message|> And it came to";
  const std::string final = head + "<|channel|>final<|message|> And it came to";
  // The prompt says what goes on.
  Outcome outcome = Generate(test, analysis, split);
  EXPECT_EQ(outcome.text, "");
  EXPECT_NE(outcome.reasoning, "");
  outcome = Generate(test, final, split);
  EXPECT_NE(outcome.text, "");
  EXPECT_EQ(outcome.reasoning, "");
  outcome = Generate(test, "And it came to", split);
  EXPECT_NE(outcome.text, "");
  split.reasoning->start = Channel::kReasoning;
  EXPECT_EQ(Generate(test, final, split).text, "");
  split.reasoning->start.reset();
  // A marker is no text, whatever comes of it.
  const auto bias = [&](const char* marker) {
    split.sampling.logit_bias = {{tokenizer->TokenId(marker), 1000.0f}};
  };
  bias("<|end|>");
  outcome = Generate(test, analysis, split);
  EXPECT_EQ(outcome.text + outcome.reasoning, "");
  EXPECT_EQ(outcome.last, Channel::kText);
  // With tags of one's own the markers are special tokens like any other.
  split.sampling.logit_bias.clear();
  split.reasoning->channels = false;
  EXPECT_NE(Generate(test, analysis, split).text, "");
}

TEST(HarmonyGeneration, OnlyTheEndOfAPromptIsRead) {
  MarkedModel test;
  ASSERT_NE(test->model, nullptr) << test->status;
  const auto* tokenizer = test->model->tokenizer();
  const auto start = [&](const std::string& prompt) {
    std::pmr::vector<int32_t> ids;
    EXPECT_TRUE(tokenizer->Encode(prompt, {false, true}, &ids).ok());
    return HarmonyStart(*tokenizer, ids);
  };
  EXPECT_EQ(start("And it came"), "");
  EXPECT_EQ(start("<|start|>user<|message|>And<|end|><|start|>assistant"), "<|start|>assistant");
  EXPECT_EQ(start("<|start|>user<|message|>And<|end|>"), "<|end|>");
  EXPECT_EQ(start("<|start|>assistant<|channel|>analysis<|message|>And so on"),
            "<|channel|>analysis<|message|>");
  EXPECT_EQ(start("<|start|>assistant<|channel|>final <|constrain|>json<|message|>And"),
            "<|channel|>final <|constrain|>json<|message|>");
  EXPECT_EQ(start("<|message|>And"), "<|message|>");
  EXPECT_LT(start("<|channel|>" + std::string(5000, 'z')).size(), 4000u);
}

}  // namespace
}  // namespace qinfer::engine
