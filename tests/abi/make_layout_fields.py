#!/usr/bin/env python3
"""Writes layout_fields.inc from the public headers: one STRUCT and its FIELDs per struct. usage: make_layout_fields.py INCLUDE_DIR"""
import pathlib
import re
import sys

text = ""
for header in sorted(pathlib.Path(sys.argv[1], "qinfer").glob("*.h")):
    text += re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
for match in re.finditer(r"typedef struct (qinfer_\w+) \{(.*?)\n\} \1;", text, flags=re.S):
    name, body = match.groups()
    print(f"STRUCT({name});")
    for field in body.split(";"):
        field = " ".join(field.split())
        if not field:
            continue
        pointer = re.search(r"\(QINFER_CALL\s*\*\s*(\w+)\)", field)
        if pointer:
            names = [pointer.group(1)]
        else:
            names = [re.sub(r"\[\w+\]", "", part).split()[-1].lstrip("*") for part in field.split(",")]
        for member in names:
            print(f"FIELD({name}, {member});")
