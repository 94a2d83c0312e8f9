// Daemons that know each other by certificates.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "tests/unit/daemon/control/peers/peer_nodes.h"

namespace arcomm::test {
namespace {

// A certificate that is its own authority, for all these addresses.
class Certificate {
 public:
  explicit Certificate(const std::string& names) : key_(EVP_EC_gen("P-256")), x509_(X509_new()) {
    X509_set_version(x509_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x509_), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509_), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509_), 3600);
    X509_set_pubkey(x509_, key_);
    X509_NAME* const name = X509_get_subject_name(x509_);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("arcommd"), -1, -1, 0);
    X509_set_issuer_name(x509_, name);
    add(NID_basic_constraints, "CA:TRUE");
    add(NID_subject_alt_name, names);
    X509_sign(x509_, key_, EVP_sha256());
  }
  ~Certificate() {
    X509_free(x509_);
    EVP_PKEY_free(key_);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  void write(const std::string& certificate, const std::string& key) const {
    std::FILE* file = std::fopen(certificate.c_str(), "w");
    PEM_write_X509(file, x509_);
    std::fclose(file);
    file = std::fopen(key.c_str(), "w");
    PEM_write_PrivateKey(file, key_, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    ::chmod(key.c_str(), 0600);
  }

 private:
  void add(int what, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, x509_, x509_, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    X509_add_ext(x509_, extension, -1);
    X509_EXTENSION_free(extension);
  }

  EVP_PKEY* key_;
  X509* x509_;
};

class PeerTlsTest : public PeersTest {
 protected:
  Settings with_certificate(Settings settings, const std::string& name) {
    const std::string path = folder_ + "/" + name;
    if (!std::filesystem::exists(path + ".pem"))
      Certificate("IP:" + host(1) + ",IP:" + host(2)).write(path + ".pem", path + ".key");
    settings.net.token_file.clear();
    settings.net.tls_cert = settings.net.tls_ca = path + ".pem";
    settings.net.tls_key = path + ".key";
    return settings;
  }
};

TEST_F(PeerTlsTest, DaemonsOfOneAuthorityTalkWithoutAToken) {
  const auto one = start(with_certificate(settings_of(1, 2), "ours"));
  const auto two = start(with_certificate(settings_of(2, 2), "ours"));
  const auto reply = one->announce(address(2), "id");
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_TRUE(eventually([&] { return two->sees(address(1)); }));
  auto here = one->ensure_link(two->self()), there = two->ensure_link(one->self());
  EXPECT_TRUE(here.get());
  EXPECT_TRUE(there.get());
}

TEST_F(PeerTlsTest, AnotherAuthoritysDaemonAndOneWithoutTlsGetNowhere) {
  const auto one = start(with_certificate(settings_of(1, 2), "ours"));
  {
    const auto two = start(with_certificate(settings_of(2, 2), "theirs"));
    EXPECT_FALSE(two->announce(address(1), "id", milliseconds(1000)));
    EXPECT_FALSE(one->sees(address(2)));
  }
  const auto two = start(2, 2);
  EXPECT_FALSE(two->announce(address(1), "id", milliseconds(1000)));
  EXPECT_TRUE(one->heard().empty());
}

// It would turn TLS off, and the token is empty then.
TEST_F(PeerTlsTest, AnEmptyFileIsNoAuthorityForAnybody) {
  Settings settings = with_certificate(settings_of(1, 2), "ours");
  settings.net.tls_ca = folder_ + "/empty.pem";
  std::ofstream(settings.net.tls_ca).close();
  const PeerNodeUnderTest node(settings);
  EXPECT_EQ(node.failure.reason, Reason::BadConfig);
  EXPECT_THAT(node.failure.message, ::testing::HasSubstr("net.tls_ca names an empty file"));
}

TEST_F(PeerTlsTest, AKeyThatOthersCanReadIsNotTaken) {
  const Settings settings = with_certificate(settings_of(1, 2), "ours");
  ::chmod(settings.net.tls_key.c_str(), 0644);
  EXPECT_THAT(PeerNodeUnderTest(settings).failure.message, ::testing::HasSubstr("net.tls_key"));
}

}  // namespace
}  // namespace arcomm::test
