#!/usr/bin/env python3
"""Writes goldens.json: what jinja2 under Hugging Face's settings answers for templates of our own.

Run from this folder with Debian's python3-jinja2: python3 make_goldens.py > goldens.json
A case is {name, template or template_of, context (a name)} and either output or error ("parse" or
"render", with the message when the template raised it itself).
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import cases
import families

NOW = datetime.datetime(2026, 3, 7, 8, 5, 9)  # 1772870709 s since 1970


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("run"), [], [], body).set_lineno(line)

        def run(self, caller):
            return caller()

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation]
    )
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


def answer(env, template, context):
    try:
        compiled = env.from_string(template)
    except Exception:
        return {"error": "parse"}
    try:
        return {"output": compiled.render(**context)}
    except Exception as e:
        return {"error": "render", "message": str(e)} if type(e) is jinja2.exceptions.TemplateError else {"error": "render"}


def main():
    env = environment()
    chatml = pathlib.Path(__file__).with_name("chatml.jinja").read_text()
    templates = {"chatml": chatml, **families.TEMPLATES}
    out, seen = [], set()
    for name, template, context in cases.CASES:
        if name in seen:
            raise SystemExit(f"two cases named {name}")
        seen.add(name)
        assert context is cases.X
        out.append({"name": name, "template": template, **answer(env, template, context)})
    contexts = {"": cases.X, **dict(families.conversations())}
    for family, template in templates.items():
        for name, context in families.conversations():
            out.append({"name": f"{family}_{name}", "template_of": family, "context": name, **answer(env, template, context)})
    # Addresses and the names of Python's own types are not ours to print.
    out = [case for case in out if not any(mark in case.get("output", "") for mark in (" at 0x", "<class"))]
    json.dump({"contexts": contexts, "templates": templates, "cases": out}, sys.stdout, ensure_ascii=False, indent=0)
    sys.stdout.write("\n")
    print(f"{len(out)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
