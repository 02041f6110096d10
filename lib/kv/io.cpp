// Header, sections and checksums of saved sessions; see io.h.
#include "kv/io.h"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstddef>
#include <cstring>

#include "core/c_format.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "saved sessions are little-endian");

// The first byte is no text, and the line ends show a transfer that changes them.
constexpr uint8_t kMagic[8] = {0x89, 'W', 'E', 'I', 'R', 'S', '\r', '\n'};
constexpr uint32_t kByteOrder = 0x01020304, kOtherByteOrder = 0x04030201;

// The same in all versions.
struct Header {
  uint8_t magic[8];
  uint32_t version;
  uint32_t byte_order;
  uint64_t checksum;  // of the fields before
};
static_assert(sizeof(Header) == 24);

uint64_t header_checksum(const Header& header) {
  Checksum sum;
  sum.add(&header, offsetof(Header, checksum));
  return sum.value();
}

using Number = unsigned long long;

struct SectionName {
  explicit SectionName(uint32_t id) {
    for (uint32_t i = 0; i < 4; ++i) text[i] = static_cast<char>(id >> (8 * i) & 0xFF);
  }
  char text[5] = {};
};

}  // namespace

Status Io::begin(uint32_t version) {
  version_ = version;
  return saves() ? begin_saving() : begin_restoring();
}

Status Io::begin_section(uint32_t id) {
  WEIR_TRY(end_section());
  section_.reset();
  const uint64_t at = at_;
  uint32_t found = id;
  WEIR_TRY(value(found));
  in_ = id;
  if (found == id) return {};
  return fail(WEIR_ERR_FORMAT, "the saved session is damaged: no section %s at byte %llu", SectionName(id).text,
              Number{at});
}

Status Io::end_section() {
  if (in_ == 0) return {};
  const uint64_t wanted = section_.value();
  uint64_t checksum = wanted;
  WEIR_TRY(value(checksum));
  const SectionName name(in_);
  in_ = 0;
  if (checksum == wanted) return {};
  return fail(WEIR_ERR_FORMAT,
              "the saved session is damaged: section %s, which ends at byte %llu, has another checksum", name.text,
              Number{at_});
}

Status Io::finish() {
  WEIR_TRY(section("END!"));
  in_ = 0;
  const uint64_t wanted = total_.value();
  uint64_t checksum = wanted;
  WEIR_TRY(value(checksum));
  if (saves()) return flush();
  if (checksum == wanted) return {};
  return fail(WEIR_ERR_FORMAT, "the saved session is damaged: the checksum of all %llu bytes is another", Number{at_});
}

Status Io::too_many(uint64_t n, uint64_t room, const char* what) const {
  return fail(WEIR_ERR_FORMAT, "the saved session has %llu %s at byte %llu, where this session has room for %llu",
              Number{n}, what, Number{at_}, Number{room});
}

Status Io::damaged(const char* format, ...) const {
  char what[128];
  va_list arguments;
  va_start(arguments, format);
  (void)c_vformat(what, sizeof(what), format, arguments);
  va_end(arguments);
  return fail(WEIR_ERR_FORMAT, "the saved session is damaged before byte %llu: %s", Number{at_}, what);
}

// --- saving --------------------------------------------------------------------------------------------------------

Status Io::put(const void* data, uint64_t n) {
  const Answer answer = sink_->write(data, n, at_);
  if (!answer.agreed) {
    return fail(WEIR_ERR_IO, "the write callback did not take %llu bytes at byte %llu of the saved session%s",
                Number{n}, Number{at_}, answer.why());
  }
  at_ += n;
  return {};
}

Status Io::flush() {
  const uint32_t n = n_buffered_;
  n_buffered_ = 0;
  return n == 0 ? Status() : put(buffer_, n);
}

Status Io::save(const void* data, uint64_t n) {
  section_.add(data, n);
  total_.add(data, n);
  if (n > sizeof(buffer_) - n_buffered_) WEIR_TRY(flush());
  if (n > sizeof(buffer_)) return put(data, n);
  if (n != 0) std::memcpy(buffer_ + n_buffered_, data, n);
  n_buffered_ += static_cast<uint32_t>(n);
  return {};
}

Status Io::begin_saving() {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = version_;
  header.byte_order = kByteOrder;
  header.checksum = header_checksum(header);
  return save(&header, sizeof(header));
}

// --- restoring -----------------------------------------------------------------------------------------------------

Status Io::restore(void* out, uint64_t n) {
  auto* to = static_cast<std::byte*>(out);
  for (uint64_t done = 0; done < n;) {
    uint64_t n_read = 0;
    const Answer answer = source_->read(to + done, n - done, at_ + done, n_read);
    if (!answer.agreed) {
      return fail(WEIR_ERR_IO, "the read callback did not give byte %llu of the saved session%s", Number{at_ + done},
                  answer.why());
    }
    if (n_read > n - done) {
      return fail(WEIR_ERR_IO,
                  "the read callback claims to have given %llu bytes at byte %llu of the saved session, %llu"
                  " were asked for",
                  Number{n_read}, Number{at_ + done}, Number{n - done});
    }
    if (n_read == 0) return fail(WEIR_ERR_FORMAT, "the saved session ends at byte %llu", Number{at_ + done});
    done += n_read;
  }
  section_.add(out, n);
  total_.add(out, n);
  at_ += n;
  return {};
}

Status Io::pass_over(uint64_t n, uint64_t max, const char* what) {
  if (n > max) return too_many(n, max, what);
  std::byte part[256];
  for (uint64_t n_part = 0; n != 0; n -= n_part) {
    n_part = std::min<uint64_t>(n, sizeof(part));
    WEIR_TRY(restore(part, n_part));
  }
  return {};
}

Status Io::begin_restoring() {
  Header header;
  WEIR_TRY(restore(&header, sizeof(header)));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return fail(WEIR_ERR_FORMAT, "this is no saved session: the first eight bytes are others");
  if (header.byte_order == kOtherByteOrder)
    return fail(WEIR_ERR_UNSUPPORTED, "the saved session is of a big-endian machine");
  if (header.checksum != header_checksum(header) || header.byte_order != kByteOrder || header.version == 0)
    return fail(WEIR_ERR_FORMAT, "the saved session is damaged: its header has another checksum");
  if (header.version > kSessionVersion) {
    return fail(WEIR_ERR_UNSUPPORTED, "the saved session has format version %u; this build reads up to %u",
                header.version, kSessionVersion);
  }
  version_ = header.version;
  return {};
}

}  // namespace weir
