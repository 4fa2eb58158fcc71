// JSON trees: values, bounds, messages, and that an allocation that fails leaves nothing behind.
#include "format/json_tree.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace qinfer::format {
namespace {

TEST(JsonTree, HoldsWhatTheTextSays) {
  Memory memory;
  {
    JsonTree tree(&memory);
    ASSERT_TRUE(tree.Parse(R"({"a":[1,-2,2.5,"x\u00e9",true,null],"b":{"c":"d"},"a2":"","b2":{},)"
                           R"("big":18446744073709551615,"twice":1,"twice":2})",
                           "t")
                    .ok());
    const JsonNode& root = tree.root();
    ASSERT_TRUE(root.IsObject());
    EXPECT_EQ(root.size, 7u);
    const JsonNode* a = root.Get("a");
    ASSERT_NE(a, nullptr);
    ASSERT_EQ(a->size, 6u);
    const JsonNode::Type types[] = {JsonNode::kUint,   JsonNode::kInt,  JsonNode::kFloat,
                                    JsonNode::kString, JsonNode::kBool, JsonNode::kNull};
    const char* names[] = {"number", "number", "number", "string", "boolean", "null"};
    size_t i = 0;
    for (const JsonNode& item : *a) {
      EXPECT_EQ(item.type, types[i]);
      EXPECT_EQ(item.TypeName(), names[i]);
      ++i;
    }
    EXPECT_EQ(a->first->unsigned_whole(), 1u);
    EXPECT_EQ(a->first->next->whole, -2);
    EXPECT_EQ(a->first->next->number, -2.0);
    EXPECT_EQ(a->first->next->next->number, 2.5);
    EXPECT_EQ(a->first->next->next->next->text, "x\xc3\xa9");
    EXPECT_EQ(root.Get("b")->GetText("c"), "d");
    EXPECT_EQ(root.Get("b")->GetText("none", "other"), "other");
    EXPECT_EQ(root.Get("b")->TypeName(), "object");
    EXPECT_EQ(root.Get("big")->unsigned_whole(), UINT64_MAX);
    EXPECT_EQ(root.Get("twice")->whole, 2);
    EXPECT_EQ(root.Get("zzz"), nullptr);
    EXPECT_EQ(a->Get("a"), nullptr);
    EXPECT_TRUE(root.GetBool("a", true));
    EXPECT_GT(memory.used_bytes(), 0u);
  }
  EXPECT_EQ(memory.used_bytes(), 0u);
}

TEST(JsonTree, MistakesNameTheByte) {
  const auto message = [](const std::string& text) {
    Memory memory;
    JsonTree tree(&memory);
    const Status status = tree.Parse(text, "config.json");
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    return std::string(status.message());
  };
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "{\"a\" 1}", "nul", "{}{}", "\xff"}) {
    const std::string found = message(text);
    EXPECT_NE(found.find("config.json"), std::string::npos) << found;
    EXPECT_NE(found.find("byte"), std::string::npos) << found;
  }
  EXPECT_NE(message("{\"abc\": [1, 2, x]}").find("before byte 1"), std::string::npos);
  const std::string deep(JsonTree::kMaxDepth + 1, '[');
  EXPECT_NE(message(deep + std::string(deep.size(), ']')).find("nested deeper than 64"),
            std::string::npos);
  std::string many = "[";
  for (uint32_t i = 0; i < JsonTree::kMaxNodes; ++i) many += "0,";
  many += "0]";
  EXPECT_NE(message(many).find("more than 200000 values"), std::string::npos);
  std::string longest = "[";
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 17; ++i) longest += (i == 0 ? "\"" : ",\"") + piece + "\"";
  EXPECT_NE(message(longest + "]").find("longer than 16 MiB"), std::string::npos);
}

struct Failing {
  long left = 0;
  long live = 0;
  static void* Allocate(void* user, size_t size, size_t) {
    auto* self = static_cast<Failing*>(user);
    if (--self->left < 0) return nullptr;  // from here on always
    ++self->live;
    return std::malloc(size);
  }
  static void Release(void* user, void* block, size_t, size_t) {
    --static_cast<Failing*>(user)->live;
    std::free(block);
  }
};

TEST(JsonTree, MemoryThatRunsOutIsGivenBack) {
  std::string text = "{\"list\":[";
  for (int i = 0; i < 500; ++i) text += "{\"name\":\"a text of some length\",\"value\":1.5},";
  text += "[[[[[]]]]]]}";
  long needed = 0;
  for (bool done = false; !done; ++needed) {
    Failing failing;
    failing.left = needed;
    Memory memory({&failing, Failing::Allocate, Failing::Release});
    {
      JsonTree tree(&memory);
      try {
        done = tree.Parse(text, "t").ok();
        EXPECT_TRUE(done);
      } catch (const std::bad_alloc&) {
        done = false;
      }
    }
    EXPECT_EQ(failing.live, 0);
    EXPECT_EQ(memory.used_bytes(), 0u);
    ASSERT_LT(needed, 1000);
  }
  EXPECT_GT(needed, 3);
}

}  // namespace
}  // namespace qinfer::format
