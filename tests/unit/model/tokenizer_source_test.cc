#include "common/model/tokenizer_source.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/dummy_weights.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_gguf.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TokenizerSource : public testing::Test {
 protected:
  void Write(const std::string& name, std::string_view text) { folder_.Write(name, text); }
  void WriteConfig() {
    Write(
        "config.json",
        R"({"model_type":"llama","hidden_size":8,"num_attention_heads":1,"num_hidden_layers":1,)"
        R"("intermediate_size":8,"vocab_size":8,"max_position_embeddings":64,"eos_token_id":[2,1]})");
  }
  std::string TemplateOf() {
    const auto text = LoadChatTemplate(folder_.path());
    return text.ok() ? text->text : std::string(Message(text.status()));
  }

  const TemporaryFolder folder_;
};

TEST_F(TokenizerSource, ReadsAGgufFile) {
  ModelSpec spec;
  spec.hidden = 32;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = 32;
  spec.intermediate = 32;
  spec.vocab = 8;
  spec.context_length = 64;
  spec.layers.resize(1);
  const DummyWeights weights(1);
  GgufWriter writer = WriteModel(spec, FloatsOf(weights, spec), VectorsOf(weights));
  writer.SetString("tokenizer.ggml.model", "gpt2");
  writer.SetString("tokenizer.ggml.pre", "smollm");
  writer.SetStrings("tokenizer.ggml.tokens",
                    std::vector<std::string>{"a", "b", "<|end|>", "ab", "<|eot|>"});
  writer.SetInt32s("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 3, 1, 3});
  writer.SetStrings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.SetUint32("tokenizer.ggml.eot_token_id", 4);
  writer.SetString("tokenizer.chat_template", "{{ messages }}");
  const auto bytes = writer.Finish();
  Write("m.gguf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});

  const auto found = LoadTokenizerSpec(folder_.path());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  ASSERT_EQ(found->pieces.size(), 5u);
  EXPECT_EQ(found->pieces[3].bytes, "ab");
  EXPECT_EQ(found->merges.size(), 1u);
  EXPECT_THAT(found->eos, testing::Contains(2));
  EXPECT_THAT(found->eos, testing::Contains(4));
  EXPECT_EQ(TemplateOf(), "{{ messages }}");
}

TEST_F(TokenizerSource, ReadsAHuggingFaceDirectory) {
  WriteConfig();
  Write("tokenizer.json",
        R"({"version":"1.0","added_tokens":[{"id":2,"content":"<s>","special":true,"lstrip":false,)"
        R"("rstrip":false,"single_word":false,"normalized":false}],"normalizer":null,)"
        R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
        R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)"
        R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"<s>":2,"ab":3},"merges":["a b"]}})");
  const auto found = LoadTokenizerSpec(folder_.path());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->pieces.size(), 4u);
  EXPECT_THAT(found->eos, ElementsAre(2, 1));
}

TEST_F(TokenizerSource, ReadsATiktokenFileWhereThereIsNoTokenizerJson) {
  WriteConfig();
  Write("tiktoken.model", "YQ== 0\nYg== 1\nYWI= 2\n");
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()),
              HasSubstr("tiktoken.model: tokenizer_config.json: a tiktoken.model of"));
  Write("tokenizer_config.json", R"({"tokenizer_class":"TikTokenTokenizer"})");
  const auto found = LoadTokenizerSpec(folder_.path());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->pieces[2].bytes, "ab");
  EXPECT_EQ(found->merges.size(), 1u);
}

TEST_F(TokenizerSource, ReadsATekkenFileBeforeATiktokenFile) {
  WriteConfig();
  Write("tiktoken.model", "YQ== 0\n");
  Write("tekken.json",
        R"({"config":{"pattern":".","default_vocab_size":3,)"
        R"("default_num_special_tokens":2},"vocab":)"
        R"([{"rank":0,"token_bytes":"YQ=="}]})");
  const auto found = LoadTokenizerSpec(folder_.path());
  ASSERT_TRUE(found.ok()) << Message(found.status());
  EXPECT_EQ(found->pieces.size(), 3u);
  Write("tekken.json", "{");
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()), HasSubstr("/tekken.json: "));
}

TEST_F(TokenizerSource, ReadsAFileOfSentencePieceWhereThereIsNoOther) {
  WriteConfig();
  // Two pieces (field 1), "<unk>" and "a", and a BPE model (field 3 of field 2).
  Write("tokenizer.model", "\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x03\x0a\x01\x61\x12\x02\x18\x02");
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()),
              HasSubstr("/tokenizer.model: tokenizer.model: trainer_spec.eos_id is 2"));
  Write("tokenizer.json", "{");
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()), HasSubstr("tokenizer.json: "));
}

TEST_F(TokenizerSource, NamesTheFileThatIsWrong) {
  WriteConfig();
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()), HasSubstr("tokenizer.json"));
  Write("tokenizer.json", "{");
  EXPECT_THAT(Message(LoadTokenizerSpec(folder_.path()).status()), HasSubstr("tokenizer.json: "));
}

TEST_F(TokenizerSource, PrefersTheTemplateInItsOwnFile) {
  WriteConfig();
  EXPECT_THAT(TemplateOf(), HasSubstr("has no chat template"));
  EXPECT_EQ(LoadChatTemplate(folder_.path()).status().code(), StatusCode::kNotFound);
  Write("chat_template.json", R"({"chat_template": "third"})");
  EXPECT_EQ(TemplateOf(), "third");
  Write("tokenizer_config.json", R"({"chat_template": "second"})");
  EXPECT_EQ(TemplateOf(), "second");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name":"rag","template":"x"},{"name":"default","template":"d"}]})");
  EXPECT_EQ(TemplateOf(), "d");
  Write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_THAT(TemplateOf(), HasSubstr("tokenizer_config.json: chat_template must be a string"));
  EXPECT_EQ(LoadChatTemplate(folder_.path()).status().code(), StatusCode::kInvalidArgument);
  Write("tokenizer_config.json", R"({"chat_template": "second"})");
  EXPECT_EQ(LoadChatTemplate(folder_.path())->origin,
            folder_.path() + "/tokenizer_config.json: chat_template");
  Write("chat_template.jinja", "first");
  EXPECT_EQ(TemplateOf(), "first");
  EXPECT_EQ(LoadChatTemplate(folder_.path())->origin, folder_.path() + "/chat_template.jinja");
}

}  // namespace
}  // namespace baton
