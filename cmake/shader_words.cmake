# cmake -DBINARY=<file> -DCODE=<file> -P shader_words.cmake: the words of a SPIR-V file as a C initialiser. The compiler
# (-mfmt=c) takes ten times as long for it, because it compiles once more.
file(READ "${BINARY}" bytes HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1,\n" words "${bytes}")
file(WRITE "${CODE}" "{\n${words}}\n")
