#include "runtime/hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace bloomery::hub {
namespace {

constexpr std::string_view kSha256 = "sha256:";
constexpr std::string_view kGit = "git:";
constexpr size_t kReadBytes = size_t{1} << 20;

void Require(int result) {
  if (result != 1) throw Error(ErrorKind::kInternal, "the digest library failed");
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

void Digest::Deleter::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(std::string_view wanted, uint64_t bytes)
    : context_(EVP_MD_CTX_new()), git_(wanted.starts_with(kGit)) {
  if (!context_) throw Error(ErrorKind::kNoMemory, "no memory for a digest");
  Require(EVP_DigestInit_ex(context_.get(), git_ ? EVP_sha1() : EVP_sha256(), nullptr));
  if (!git_) return;
  const std::string head = "blob " + std::to_string(bytes);
  Require(EVP_DigestUpdate(context_.get(), head.c_str(), head.size() + 1));  // with its NUL
}

Digest::~Digest() = default;

void Digest::Add(std::span<const std::byte> bytes) {
  Require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Digest::Finish() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned size = 0;
  Require(EVP_DigestFinal_ex(context_.get(), raw.data(), &size));
  std::string text(git_ ? kGit : kSha256);
  for (unsigned i = 0; i < size; ++i) {
    text.push_back(kDigits[raw[i] >> 4U]);
    text.push_back(kDigits[raw[i] & 15U]);
  }
  return text;
}

bool IsDigest(std::string_view text) {
  if (text.starts_with(kSha256)) return IsHex(text.substr(kSha256.size()), 64);
  return text.starts_with(kGit) && IsHex(text.substr(kGit.size()), 40);
}

std::string DigestOfFile(const std::string& path, std::string_view wanted, uint64_t bytes) {
  const auto file = RealFileSystem().Open(path);
  Digest digest(wanted, bytes);
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t at = 0; at < file->size(); at += kReadBytes) {
    const std::span<std::byte> piece(buffer.data(),
                                     std::min<uint64_t>(kReadBytes, file->size() - at));
    file->ReadAt(at, piece);
    digest.Add(piece);
  }
  return digest.Finish();
}

}  // namespace bloomery::hub
