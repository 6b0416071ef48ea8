// What a hub's listing gives for each file, computed from bytes as they come: SHA-256, or the name
// git gives a blob (SHA-1 over a head with the size, then the bytes). One thread; owns its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace bloomery::hub {

class Digest {
 public:
  // Of the kind that `wanted` is written in, "sha256:<hex>" or "git:<hex>", for a file of `bytes`.
  Digest(std::string_view wanted, uint64_t bytes);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(std::span<const std::byte> bytes);
  // Written as `wanted` was. Ends it: nothing can be added after.
  std::string Finish();

 private:
  struct Deleter {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Deleter> context_;
  bool git_;
};

// Whether a text is "sha256:" and 64, or "git:" and 40 lower-case hexadecimal digits.
bool IsDigest(std::string_view text);

// Of a file's bytes from the disk. Error(kNoInput) naming the path.
std::string DigestOfFile(const std::string& path, std::string_view wanted, uint64_t bytes);

}  // namespace bloomery::hub
