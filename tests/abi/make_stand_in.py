#!/usr/bin/env python3
"""Turns every function that the public headers declare into an empty definition, so that the types of the interface can be
dumped without the library's own debug information. usage: make_stand_in.py INCLUDE_DIR"""
import pathlib
import re
import sys

text = ""
for header in sorted(pathlib.Path(sys.argv[1], "qinfer").glob("*.h")):
    text += re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
print("#include <qinfer/qinfer.h>")
for handle in ("runtime", "model", "calibration", "engine", "session", "task", "report"):
    print(f"struct qinfer_{handle} {{ int private_; }};")
for match in re.finditer(r"QINFER_API ([\w \*]+?)\s*QINFER_CALL\s+(qinfer_\w+)\((.*?)\);", text, flags=re.S):
    result, name, parameters = (" ".join(part.split()) for part in match.groups())
    body = "" if result == "void" else f" static {result.replace('const ', '')} zero; return ({result})zero;"
    print(f"{result} {name}({parameters}) {{{body} }}")
