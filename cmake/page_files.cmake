# Writes a C++ source with the bytes of the server's page: cmake -DFOLDER=... -DOUT=... -P page_files.cmake
get_filename_component(FOLDER "${FOLDER}" ABSOLUTE)
file(GLOB_RECURSE files RELATIVE "${FOLDER}" "${FOLDER}/*.html" "${FOLDER}/*.css" "${FOLDER}/*.js" "${FOLDER}/*.svg"
     "${FOLDER}/*.png")
list(SORT files)
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")
set(type_png "image/png")
set(arrays "")
set(rows "")
set(n 0)
foreach(file IN LISTS files)
  file(READ "${FOLDER}/${file}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
         bytes "${bytes}")
  string(APPEND arrays "const unsigned char kFile${n}[] = {\n${bytes}0};\n")
  string(REGEX MATCH "[a-z]+$" extension "${file}")
  set(path "/${file}")
  if(file STREQUAL "index.html")
    set(path "/")
  endif()
  string(APPEND rows "    {\"${path}\", \"${type_${extension}}\", kFile${n}, sizeof(kFile${n}) - 1},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE "${OUT}"
"#include \"server/page_files.h\"\n
namespace weir_server {\nnamespace {\n${arrays}}  // namespace\n
const PageFile kPageFiles[] = {\n${rows}};\nconst size_t kPageFileCount = ${n};\n\n}  // namespace weir_server\n")
