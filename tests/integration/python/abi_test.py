#!/usr/bin/python3
"""arcomm/abi.py says what arclient.h says.

usage: abi_test.py <arclient.h>     (PYTHONPATH: client/python)
"""
import ctypes
import re
import sys
import unittest

from arcomm import abi

with open(sys.argv.pop(1), encoding="utf-8") as header:
    TEXT = re.sub(r"/\*.*?\*/", "", header.read(), flags=re.S)

SCALARS = {
    "int": ctypes.c_int, "size_t": ctypes.c_size_t, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double, "arcTicket_t": ctypes.c_uint64, "arcComm_t": ctypes.c_void_p,
    "arcPlan_t": ctypes.c_void_p, "arcStream_t": ctypes.c_void_p,
    "void*": ctypes.c_void_p, "char*": ctypes.c_char_p,
} | {name: ctypes.c_int for name in abi.ENUMS} | abi.STRUCTS


def ctype(text):
    """Of "const void*", "arcComm_t*", "arcUniqueId"."""
    text = re.sub(r"\bconst\b|\s", "", text)
    if text in SCALARS:
        return SCALARS[text]
    assert text.endswith("*"), text
    return ctypes.POINTER(ctype(text[:-1]))


def declared(text):
    """The type of "const void* send"."""
    return ctype(re.sub(r"\w+$", "", text.strip()))


class Abi(unittest.TestCase):
    def test_every_function_is_declared_as_in_the_header(self):
        found = {}
        for result, name, arguments in re.findall(r"ARC_API ([\w* ]+?)\s*(arc\w+)\(([^)]*)\);", TEXT):
            arguments = [] if arguments.strip() == "void" else arguments.split(",")
            found[name] = (ctype(result), [declared(argument) for argument in arguments])
        self.assertGreater(len(found), 30)
        self.assertEqual(found, abi.FUNCTIONS)

    def test_every_enum_has_the_values_of_the_header(self):
        found = {}
        for body, name in re.findall(r"typedef enum \{(.*?)\} (\w+);", TEXT, flags=re.S):
            prefix = "arcReason" if name == "arcReason_t" else "arcCodec" if name == "arcCodec_t" else "arc"
            found[name] = {
                key.removeprefix(prefix).replace("None", "NONE"): int(value)
                for key, value in re.findall(r"(\w+) = (\d+)", body)
            }
        self.assertEqual(found, {name: {m.name: m.value for m in kind} for name, kind in abi.ENUMS.items()})

    def test_every_struct_has_the_fields_of_the_header(self):
        found = {}
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", TEXT, flags=re.S):
            found[name] = []
            for field in body.split(";")[:-1]:
                kind, field_name, extent = re.fullmatch(r"(.*?)(\w+)(?:\[(\w+)\])?", field.strip(), flags=re.S).groups()
                if extent is None:
                    found[name].append((field_name, ctype(kind)))
                else:
                    count = abi.UNIQUE_ID_BYTES if extent == "ARC_UNIQUE_ID_BYTES" else int(extent)
                    found[name].append((field_name, ctypes.c_char * count))
        self.assertEqual(found, {name: list(kind._fields_) for name, kind in abi.STRUCTS.items()})

    def test_numbers_are_those_of_the_header(self):
        number = {name: int(value) for name, value in re.findall(r"#define (ARC_\w+) (\d+)", TEXT)}
        self.assertEqual(number["ARC_UNIQUE_ID_BYTES"], abi.UNIQUE_ID_BYTES)
        version = number["ARC_MAJOR"] * 10000 + number["ARC_MINOR"] * 100 + number["ARC_PATCH"]
        self.assertEqual(version, abi.VERSION)


if __name__ == "__main__":
    unittest.main()
