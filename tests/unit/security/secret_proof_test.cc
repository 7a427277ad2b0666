#include "common/security/secret_proof.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

const std::string kOld = "an-old-secret-of-the-cluster-0001";
const std::string kNew = "the-new-secret-of-the-cluster-002";

std::shared_ptr<const ClusterSecret> Secret(const std::string& text) {
  return std::make_shared<const ClusterSecret>(ClusterSecret::Parse(text).value());
}

SecretProof Dialler(const std::string& secret, std::string_view purpose = "test") {
  return {Secret(secret), PeerSide::kDialler, purpose};
}
SecretProof Listener(const std::string& secret, std::string_view purpose = "test") {
  return {Secret(secret), PeerSide::kListener, purpose};
}

// Exchanges all messages; the first error.
Status Handshake(SecretProof& dialler, SecretProof& listener) {
  std::string message = dialler.Begin();
  while (true) {
    EXPECT_EQ(message.size(), kPeerProofBytes);
    BATON_ASSIGN_OR_RETURN(message, listener.OnMessage(message));
    BATON_ASSIGN_OR_RETURN(message, dialler.OnMessage(message));
    if (message.empty()) return OkStatus();
  }
}

TEST(SecretProof, ProvesBothSides) {
  SecretProof dialler = Dialler(kOld);
  SecretProof listener = Listener(kOld);
  const Status proven = Handshake(dialler, listener);
  EXPECT_TRUE(proven.ok()) << proven;
  EXPECT_TRUE(dialler.done());
  EXPECT_TRUE(listener.done());
}

TEST(SecretProof, SendsNeitherTheSecretNorTheSameBytesTwice) {
  for (const std::string& text : {Dialler(kOld).Begin(), Listener(kOld).Begin()}) {
    EXPECT_EQ(text.find(kOld), std::string::npos);
  }
  EXPECT_NE(Dialler(kOld).Begin(), Dialler(kOld).Begin());
}

TEST(SecretProof, RefusesAnotherSecret) {
  SecretProof dialler = Dialler(kNew);
  SecretProof listener = Listener(kOld);
  const Status refused = Handshake(dialler, listener);
  EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("security.cluster_secret_file"));
  EXPECT_FALSE(dialler.done());
  EXPECT_FALSE(listener.done());
}

TEST(SecretProof, RefusesAnotherPurpose) {
  for (const std::string_view purpose : {"worker-link", "kv-bulk"}) {
    SecretProof dialler = Dialler(kOld, "kv-data");
    SecretProof listener = Listener(kOld, purpose);
    EXPECT_EQ(Handshake(dialler, listener).code(), StatusCode::kUnauthenticated) << purpose;
  }
}

TEST(SecretProof, AcceptsBothSecretsWhileOneIsReplaced) {
  const std::pair<std::string, std::string> steps[] = {{kOld, kOld + "\n" + kNew},
                                                       {kOld + "\n" + kNew, kOld},
                                                       {kNew + "\n" + kOld, kOld + "\n" + kNew},
                                                       {kOld + "\n" + kNew, kNew + "\n" + kOld},
                                                       {kNew, kNew + "\n" + kOld},
                                                       {kNew + "\n" + kOld, kNew}};
  for (const auto& [dials, listens] : steps) {
    SecretProof dialler = Dialler(dials);
    SecretProof listener = Listener(listens);
    EXPECT_TRUE(Handshake(dialler, listener).ok()) << dials << " → " << listens;
  }
}

TEST(SecretProof, RefusesARecordedHandshake) {
  SecretProof dialler = Dialler(kOld);
  SecretProof listener = Listener(kOld);
  const std::string hello = dialler.Begin();
  const std::string proof = dialler.OnMessage(listener.OnMessage(hello).value()).value();
  ASSERT_TRUE(listener.OnMessage(proof).ok());
  SecretProof again = Listener(kOld);
  ASSERT_TRUE(again.OnMessage(hello).ok());
  EXPECT_EQ(again.OnMessage(proof).status().code(), StatusCode::kUnauthenticated);
  EXPECT_FALSE(again.done());
}

// A stranger opens a second connection to the listener, or to the dialler, and passes on messages.
TEST(SecretProof, RefusesReflectedMessages) {
  SecretProof listener = Listener(kOld);
  SecretProof mirror = Dialler(kOld);  // only for its hello
  const std::string challenge = listener.OnMessage(mirror.Begin()).value();
  std::string reflected = challenge;
  reflected[kPeerProofMagic.size()] = 3;  // the listener's nonce as the dialler's proof
  EXPECT_FALSE(listener.OnMessage(reflected).ok());

  SecretProof dialler = Dialler(kOld);
  std::string echo = dialler.Begin();
  echo[kPeerProofMagic.size()] = 2;  // the dialler's nonce as the listener's challenge
  std::string own_proof = dialler.OnMessage(echo).value();
  own_proof[kPeerProofMagic.size()] = 4;  // its own proof as the listener's
  EXPECT_FALSE(dialler.OnMessage(own_proof).ok());
  EXPECT_FALSE(dialler.done());
}

TEST(SecretProof, RefusesMessagesOutOfOrderAndGarbage) {
  for (const std::string& bad : {std::string(),
                                 std::string("GET / HTTP/1.1\r\n"),
                                 std::string(kPeerProofBytes, 'x'),
                                 std::string(kPeerProofBytes + 1, 'B')}) {
    SecretProof listener = Listener(kOld);
    const auto answer = listener.OnMessage(bad);
    EXPECT_EQ(answer.status().code(), StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(Message(answer.status())), HasSubstr("cluster_secret_file"));
  }
  SecretProof dialler = Dialler(kOld);
  SecretProof listener = Listener(kOld);
  const std::string hello = dialler.Begin();
  ASSERT_TRUE(listener.OnMessage(hello).ok());
  EXPECT_THAT(std::string(Message(listener.OnMessage(hello).status())),
              HasSubstr("message 1; 3 was expected"));
  EXPECT_FALSE(dialler.OnMessage(hello).ok());
}

// After a refusal nothing more is accepted on the connection: no second guess.
TEST(SecretProof, AllowsOneAttempt) {
  SecretProof dialler = Dialler(kOld);
  SecretProof listener = Listener(kOld);
  const std::string challenge = listener.OnMessage(dialler.Begin()).value();
  const std::string proof = dialler.OnMessage(challenge).value();
  std::string wrong = proof;
  wrong.back() = static_cast<char>(wrong.back() ^ 1);
  ASSERT_FALSE(listener.OnMessage(wrong).ok());
  EXPECT_FALSE(listener.OnMessage(proof).ok());
  EXPECT_FALSE(listener.done());
}

}  // namespace
}  // namespace baton
