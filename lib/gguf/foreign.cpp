// Recognised by their first bytes.
#include "gguf/foreign.h"

#include <cstring>
#include <string_view>

namespace weir {
namespace {

using std::string_view;

#define WEIR_INTERNAL_CONVERT \
  "; a converter such as llama.cpp's convert_hf_to_gguf.py makes GGUF from the model's folder"
#define WEIR_INTERNAL_OLD "; it predates GGUF, so get the model again as GGUF"

struct Foreign {
  string_view begin;
  const char* what;
};
constexpr Foreign kForeign[] = {
    {string_view("PK\x03\x04", 4), "a zip archive, as PyTorch's checkpoints are" WEIR_INTERNAL_CONVERT},
    {string_view("\x80\x02", 2), "a pickle, as old PyTorch checkpoints are" WEIR_INTERNAL_CONVERT},
    {"lmgg", "an old GGML file (ggml)" WEIR_INTERNAL_OLD},
    {"fmgg", "an old GGML file (ggmf)" WEIR_INTERNAL_OLD},
    {"tjgg", "an old GGML file (ggjt)" WEIR_INTERNAL_OLD},
    {"algg", "a LoRA adapter of old GGML (ggla), which is no model"},
    {"ggml", "an old GGML file (ggml)" WEIR_INTERNAL_OLD},
    {"ggmf", "an old GGML file (ggmf)" WEIR_INTERNAL_OLD},
    {"ggjt", "an old GGML file (ggjt)" WEIR_INTERNAL_OLD},
    {"ggla", "a LoRA adapter of old GGML (ggla), which is no model"},
    {"FUGG", "a big-endian GGUF file; only little-endian files can be read"},
    {string_view("\x89HDF", 4), "an HDF5 file, as Keras writes" WEIR_INTERNAL_CONVERT},
    {string_view("\x93NUMPY", 6), "an array of NumPy, no model"},
    {string_view("\x1f\x8b", 2), "compressed by gzip; unpack it first"},
    {string_view("\x28\xb5\x2f\xfd", 4), "compressed by Zstandard; unpack it first"},
    {string_view("\xfd"
                 "7zXZ",
                 5),
     "compressed by xz; unpack it first"},
    {"version https://git-lfs", "a pointer of Git LFS, and the model was not downloaded; git lfs pull does that"},
    {"<!DOCTYPE", "a web page; the download gave a page instead of the file"},
    {"<!doctype", "a web page; the download gave a page instead of the file"},
    {"<html", "a web page; the download gave a page instead of the file"},
    {"<?xml", "an XML text, perhaps what a server answered instead of the file"},
    {"{", "a JSON text, no model; the model's weights are in another file"},
};

// A safetensors file begins with the length of its JSON header, 64 bits, and the header.
bool is_safetensors(string_view begin) {
  uint64_t n = 0;
  if (begin.size() < 10) return false;
  std::memcpy(&n, begin.data(), sizeof(n));
  return n >= 2 && n < (uint64_t{1} << 32) && begin[8] == '{' &&
         (begin[9] == '"' || begin[9] == '}' || begin[9] == ' ');
}

}  // namespace

const char* foreign_file(std::span<const uint8_t> bytes) {
  const string_view begin(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_safetensors(begin)) return "a safetensors file" WEIR_INTERNAL_CONVERT;
  for (const Foreign& foreign : kForeign) {
    if (begin.starts_with(foreign.begin)) return foreign.what;
  }
  return nullptr;
}

}  // namespace weir
