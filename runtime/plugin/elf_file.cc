#include "runtime/plugin/elf_file.h"

#include <elf.h>

#include <cstring>
#include <span>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/limits.h"

namespace bloomery::plugin {
namespace {

class Reader {
 public:
  Reader(const std::string& bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void Refuse(const std::string& problem) const {
    throw Error(ErrorKind::kBadModel, path_ + " is no usable shared object: " + problem);
  }
  template <class T>
  T At(uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) {
      Refuse("cut at byte " + std::to_string(offset));
    }
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string Text(const Elf64_Shdr& strings, uint64_t offset) const {
    if (offset >= strings.sh_size) Refuse("a name outside its string table");
    std::string text;
    for (uint64_t i = strings.sh_offset + offset; At<char>(i) != '\0'; ++i) text += At<char>(i);
    return text;
  }
  Elf64_Shdr Section(uint64_t i) const {
    const auto header = At<Elf64_Ehdr>(0);
    if (i >= header.e_shnum) Refuse("section " + std::to_string(i) + " does not exist");
    return At<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
  }
  void CheckHeader() const {
    const auto header = At<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) Refuse("not an ELF file");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
      Refuse("not 64-bit little-endian");
    }
    if (header.e_type != ET_DYN) Refuse("not a shared object");
    if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) {
      Refuse("no section headers");
    }
  }

 private:
  const std::string& bytes_;
  const std::string& path_;
};

void ReadSymbols(const Reader& reader, const Elf64_Shdr& section, ElfFile& out) {
  const Elf64_Shdr names = reader.Section(section.sh_link);
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
    const auto symbol = reader.At<Elf64_Sym>(section.sh_offset + at);
    const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
    if (visibility == STV_HIDDEN || visibility == STV_INTERNAL) continue;
    out.exported.push_back(reader.Text(names, symbol.st_name));
  }
}

void ReadDynamic(const Reader& reader, const Elf64_Shdr& section, ElfFile& out) {
  const Elf64_Shdr names = reader.Section(section.sh_link);
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= section.sh_size; at += sizeof(Elf64_Dyn)) {
    const auto entry = reader.At<Elf64_Dyn>(section.sh_offset + at);
    if (entry.d_tag == DT_NULL) return;
    if (entry.d_tag == DT_NEEDED) out.needed.push_back(reader.Text(names, entry.d_un.d_val));
    if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH) {
      out.run_path.push_back(reader.Text(names, entry.d_un.d_val));
    }
  }
}

}  // namespace

void CheckElfIsWhole(const std::string& path) {
  const auto file = RealFileSystem().Open(path);
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorKind::kBadModel, "plugin " + path + ": cannot be loaded: " + problem);
  };
  Elf64_Ehdr header{};
  if (file->size() < sizeof(header)) refuse("file too short");
  file->ReadAt(0, std::as_writable_bytes(std::span(&header, 1)));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > limits::kElfSegmentsMax) {
    refuse("not a 64-bit ELF file");
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  const uint64_t table_bytes = segments.size() * sizeof(Elf64_Phdr);
  if (header.e_phoff > file->size() || table_bytes > file->size() - header.e_phoff) {
    refuse("file too short");
  }
  if (!segments.empty()) {
    file->ReadAt(header.e_phoff, std::as_writable_bytes(std::span(segments)));
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > file->size() || segment.p_filesz > file->size() - segment.p_offset) {
      refuse("file too short: it ends at byte " + std::to_string(file->size()) +
             ", a segment needs bytes up to " +
             std::to_string(segment.p_offset + segment.p_filesz));
    }
  }
}

ElfFile ReadElf(const std::string& path) {
  const std::string bytes = ReadWholeFile(RealFileSystem(), path, limits::kElfBytesMax);
  const Reader reader(bytes, path);
  reader.CheckHeader();
  ElfFile out;
  bool dynamic = false;
  for (uint64_t i = 0; i < reader.At<Elf64_Ehdr>(0).e_shnum; ++i) {
    const Elf64_Shdr section = reader.Section(i);
    if (section.sh_type == SHT_DYNSYM) ReadSymbols(reader, section, out);
    if (section.sh_type == SHT_DYNAMIC) {
      ReadDynamic(reader, section, out);
      dynamic = true;
    }
  }
  if (!dynamic) reader.Refuse("no dynamic section");
  return out;
}

}  // namespace bloomery::plugin
