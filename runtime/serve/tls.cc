#include "runtime/serve/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <boost/asio/ssl/context.hpp>
#include <cstring>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::serve {
namespace {

// Of TLS 1.2; 1.3 has good ones only.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL";

[[noreturn]] void Refuse(const std::string& what) {
  const unsigned long code = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  throw Error(ErrorKind::kUsage, what + (reason == nullptr ? "" : std::string(": ") + reason));
}

// Of a key behind a passphrase: nobody is there to be asked.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct CertificateDeleter {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using Certificate = std::unique_ptr<X509, CertificateDeleter>;

std::unique_ptr<BIO, BioDeleter> Reader(const std::string& text) {
  return std::unique_ptr<BIO, BioDeleter>(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

void WarnOfDates(const X509* certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    LOG(WARNING) << "--ssl-cert-file: the certificate has expired; clients will refuse it";
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    LOG(WARNING) << "--ssl-cert-file: the certificate is not valid yet; clients will refuse it";
  }
}

void UseCertificates(SSL_CTX* context, const std::string& text) {
  const auto bio = Reader(text);
  const Certificate own(PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassphrase, nullptr));
  if (!own) Refuse("--ssl-cert-file: no certificate in PEM form");
  WarnOfDates(own.get());
  if (SSL_CTX_use_certificate(context, own.get()) != 1) {
    Refuse("--ssl-cert-file: the certificate cannot be used");
  }
  while (X509* further = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, further) == 1) continue;
    X509_free(further);
    Refuse("--ssl-cert-file: a certificate of the chain cannot be used");
  }
  const unsigned long code = ERR_peek_last_error();  // NOLINT(google-runtime-int): OpenSSL's type
  if (ERR_GET_LIB(code) != ERR_LIB_PEM || ERR_GET_REASON(code) != PEM_R_NO_START_LINE) {
    Refuse("--ssl-cert-file: a certificate of the chain is damaged");
  }
  ERR_clear_error();
}

void UseKey(SSL_CTX* context, const std::string& text) {
  const auto bio = Reader(text);
  const std::unique_ptr<EVP_PKEY, KeyDeleter> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (!key) Refuse("--ssl-key-file: no private key in PEM form without a passphrase");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    Refuse("--ssl-key-file: the key is not that of the certificate");
  }
}

// HTTP/1.1 is all that is spoken here.
int PickProtocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_length,
                 const unsigned char* offered, unsigned offered_length, void* /*data*/) {
  static constexpr std::string_view kHttp11 = "http/1.1";
  for (unsigned at = 0; at < offered_length; at += 1U + offered[at]) {
    if (offered[at] != kHttp11.size() || at + 1 + kHttp11.size() > offered_length ||
        std::memcmp(offered + at + 1, kHttp11.data(), kHttp11.size()) != 0) {
      continue;
    }
    *out = offered + at + 1;
    *out_length = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

std::shared_ptr<TlsContext> MakeTlsContext(const std::string& certificates,
                                           const std::string& key) {
  auto context = std::make_shared<TlsContext>(TlsContext::tls_server);
  SSL_CTX* const raw = context->native_handle();
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(
      raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_COMPRESSION);
  if (SSL_CTX_set_cipher_list(raw, kCiphers) != 1) Refuse("TLS: no cipher is left");
  SSL_CTX_set_alpn_select_cb(raw, PickProtocol, nullptr);
  UseCertificates(raw, certificates);
  UseKey(raw, key);
  return context;
}

}  // namespace bloomery::serve
