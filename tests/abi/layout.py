"""Prints every field of every public struct in an ABI description: struct, number of the field, offset in bits, name,
type; and the size of each struct that may not grow.

abidiff alone cannot distinguish a struct that grew at its end, which is allowed, from one whose fields changed: when
the one is suppressed, so is the other. Lines that a release has printed must be printed by every later one. A struct
without struct_size may not grow, as callers and library go through lists of it by the size that each knows.
Usage: layout.py FILE.abi
"""
import sys
import xml.etree.ElementTree


# It has no struct_size, and callers say how far apart theirs are (weir_chat_options.message_bytes).
GROWS = {"weir_chat_message"}


def spell(types, type_id):
    """A type as text, down to the machine's types; structs by name alone, as they have lines of their own."""
    node = types[type_id]
    inner = node.get("type-id")
    if node.tag == "typedef-decl":
        return f"{node.get('name')}={spell(types, inner)}"
    if node.tag == "pointer-type-def":
        return spell(types, inner) + "*"
    if node.tag == "qualified-type-def":
        qualifiers = ("const " if node.get("const") else "") + ("volatile " if node.get("volatile") else "")
        return qualifiers + spell(types, inner)
    if node.tag == "array-type-def":
        return spell(types, inner) + "".join(f"[{dimension.get('length')}]" for dimension in node.iter("subrange"))
    if node.tag == "function-type":
        parameters = ",".join(spell(types, p.get("type-id")) for p in node.findall("parameter"))
        return f"{spell(types, node.find('return').get('type-id'))}({parameters})"
    if node.tag == "class-decl":
        return f"struct {node.get('name')}"
    return node.get("name")


def main(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    types = {node.get("id"): node for node in root.iter() if node.get("id")}
    for struct in root.iter("class-decl"):
        fields = [(member, member.find("var-decl")) for member in struct.findall("data-member")]
        if fields and fields[0][1].get("name") != "struct_size" and struct.get("name") not in GROWS:
            print(struct.get("name"), "has", struct.get("size-in-bits"), "bits for ever")
        for number, (member, field) in enumerate(fields):
            print(struct.get("name"), number, member.get("layout-offset-in-bits"), field.get("name"),
                  spell(types, field.get("type-id")))


main(sys.argv[1])
