# cmake -DBINARY=<file> -DCODE=<file> -P shader_words.cmake: the words of a SPIR-V file as a C initialiser, which takes a
# tenth of the time that the compiler takes to make the same once more (-mfmt=c).
file(READ "${BINARY}" bytes HEX)
string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1,\n" words "${bytes}")
file(WRITE "${CODE}" "{\n${words}}\n")
