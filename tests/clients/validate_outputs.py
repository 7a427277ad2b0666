"""Validates outputs against their JSON schemas with jsonschema.

Usage: validate_outputs.py FILE COUNT. Each of the COUNT lines of FILE is {"schema": …, "output": "…"}."""
import json
import sys

import jsonschema

# All formats that jsonschema knows, with the packages of its extra "format-nongpl".
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


# What escapes and `.` of ECMA-262 mean, in a class of Python.
SPACE = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"s": SPACE, "d": "0-9", "w": "A-Za-z0-9_"}


def python_pattern(pattern):
    """A pattern of ECMA-262 as one of Python's module re."""
    out, at, in_class = "", 0, False
    while at < len(pattern):
        two = pattern[at:at + 2]
        if two[0] == "\\":
            content = CLASSES.get(two[1].lower())
            if content is None:
                out += two
            elif two[1].islower():
                out += content if in_class else f"[{content}]"
            else:
                assert not in_class, f"{two} in a class is not translated"
                out += f"[^{content}]"
            at += 2
        elif pattern.startswith("[^]", at):
            out, at = out + "[\\s\\S]", at + 3
        else:
            in_class = two[0] == "[" or (in_class and two[0] != "]")
            plain = {".": "[^\\n\\r\\u2028\\u2029]", "$": "\\Z"}
            out, at = out + (two[0] if in_class else plain.get(two[0], two[0])), at + 1
    return out


def python_schema(schema):
    """The schema with its patterns in Python's notation."""
    if isinstance(schema, list):
        return [python_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: python_schema(value) for name, value in schema.items()}
    if isinstance(out.get("pattern"), str):
        out["pattern"] = python_pattern(out["pattern"])
    if "patternProperties" in out:
        out["patternProperties"] = {
            python_pattern(name): value for name, value in out["patternProperties"].items()}
    return out


def parsed(text):
    """The value of a JSON text, of which strict parsers take each part: no lone surrogates, no infinite numbers."""
    value = json.loads(text, parse_constant=refused)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    return value


def refused(name):
    raise ValueError(f"{name} is no JSON")


def main(path, count):
    missing = {"date-time", "hostname", "uri", "duration", "json-pointer", "uri-template"} - set(
        FORMATS.checkers)
    if missing:
        sys.exit(f"jsonschema lacks the formats {missing}; `./dev clients` installs their packages")
    validators = {}
    invalid = 0
    checked = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            key = json.dumps(case["schema"])
            if key not in validators:
                schema = python_schema(case["schema"])
                jsonschema.Draft202012Validator.check_schema(schema)
                validators[key] = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
            checked += 1
            try:
                validators[key].validate(parsed(case["output"]))
            except (ValueError, jsonschema.ValidationError) as error:
                invalid += 1
                if invalid <= 5:
                    print(f"INVALID: {case['output'][:300]!r}: {str(error)[:300]}\n  {key[:300]}")
    print(f"{checked} outputs of {len(validators)} schemas, {invalid} invalid")
    sys.exit(1 if invalid or checked != count else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
