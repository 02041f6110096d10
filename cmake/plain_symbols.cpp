// Makes the symbols of an object that are unique in a process (STB_GNU_UNIQUE, of which objcopy can make no local ones)
// global and hidden, in place. A step of cmake/WeirStatic.cmake. Usage: plain_symbols OBJECT
#include <elf.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

constexpr unsigned kUnique = 10;  // STB_GNU_UNIQUE

template <class T>
T* at(std::string& bytes, uint64_t offset, uint64_t n = 1) {
  if (offset > bytes.size() || n > (bytes.size() - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<T*>(bytes.data() + offset);
}

// Whether it is an object of this machine's kind.
bool make_plain(std::string& bytes) {
  const auto* header = at<Elf64_Ehdr>(bytes, 0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return false;
  }
  // An object with more than 65,279 sections has their number in the first one.
  const auto* sections = at<Elf64_Shdr>(bytes, header->e_shoff);
  if (sections == nullptr) return false;
  const uint64_t n_sections = header->e_shnum != 0 ? header->e_shnum : sections->sh_size;
  if (at<Elf64_Shdr>(bytes, header->e_shoff, n_sections) == nullptr) return false;
  for (uint64_t i = 0; i < n_sections; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const uint64_t n_symbols = sections[i].sh_size / sizeof(Elf64_Sym);
    auto* symbols = at<Elf64_Sym>(bytes, sections[i].sh_offset, n_symbols);
    if (symbols == nullptr) return false;
    for (uint64_t k = 0; k < n_symbols; ++k) {
      if (ELF64_ST_BIND(symbols[k].st_info) != kUnique) continue;
      symbols[k].st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(symbols[k].st_info)));
      symbols[k].st_other = STV_HIDDEN;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream in(argv[1], std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!make_plain(bytes)) {
    std::fprintf(stderr, "%s: no ELF object of 64 bits, little-endian\n", argv[1]);
    return 1;
  }
  std::ofstream out(argv[1], std::ios::binary);
  out << bytes << std::flush;
  if (!out) std::fprintf(stderr, "%s: cannot be written\n", argv[1]);
  return out ? 0 : 1;
}
