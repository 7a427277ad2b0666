"""Schemas as applications state them, with a document for each: made from a seed, or from PyPI."""
import importlib.resources
import json
import random

WORDS = """account address amount answer article author balance billing body book brand budget building card cart
category channel city client code color comment company contact contract country course created currency customer
delivery department deposit description device discount document email employee event file flight guest height hotel
image index invoice item job label language latitude level line link location manager member message model month name
note number office order owner page partner payment period person phone plan point policy position price product profile
project provider quantity query question rate reason receipt record region report request result review role room route
salary sample score season section segment seller series service session shift shipping size source stage state status
step stock store street subject summary supplier tag target task tax team ticket title total track type unit user value
vendor version visit weight year zone""".split()


def name_of(rng):
    return "_".join(rng.sample(WORDS, rng.choice((1, 1, 2, 2, 3))))


def text_of(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + rng.choice((".", "!", "", ", é."))


def scalar(rng):
    """Returns a schema and a value."""
    kind = rng.randrange(13)
    if kind == 0:
        return {"type": "integer", "minimum": 0, "maximum": rng.choice((10, 100, 150, 1000))}, rng.randrange(10)
    if kind == 1:
        return {"type": "integer"}, rng.randrange(-1000, 100000)
    if kind == 2:
        return {"type": "number"}, round(rng.uniform(-100, 1000), 2)
    if kind == 3:
        return {"type": "boolean"}, rng.random() < 0.5
    if kind == 4:
        values = sorted(set(rng.sample(WORDS, rng.randint(2, 8))))
        return {"type": "string", "enum": values}, rng.choice(values)
    if kind == 5:
        return {"type": "string", "format": "date-time"}, f"20{rng.randint(10, 29)}-0{rng.randint(1, 9)}-11T10:20:30Z"
    if kind == 6:
        return {"type": "string", "format": "date"}, f"20{rng.randint(10, 29)}-1{rng.randint(0, 2)}-1{rng.randint(0, 9)}"
    if kind == 7:
        return {"type": "string", "format": "email"}, f"{rng.choice(WORDS)}@{rng.choice(WORDS)}.com"
    if kind == 8:
        digits = "".join(rng.choice("0123456789abcdef") for _ in range(32))
        return ({"type": "string", "format": "uuid"},
                "-".join((digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:])))
    if kind == 9:
        return {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"}, f"AB-{rng.randint(100, 99999)}"
    if kind == 10:
        return {"type": "string", "minLength": 1, "maxLength": 80}, text_of(rng, 4)
    if kind == 11:
        return {"type": ["string", "null"]}, rng.choice((None, text_of(rng, 2)))
    return {"type": "string", "description": text_of(rng, 6)}, text_of(rng, rng.randint(1, 25))


def member(rng, depth, definitions):
    kind = rng.random()
    if depth > 0 and kind < 0.12:
        return record(rng, depth - 1, definitions)
    if depth > 0 and kind < 0.24:
        schema, value = scalar(rng) if kind < 0.18 else record(rng, depth - 1, definitions)
        return {"type": "array", "items": schema}, [value] * rng.randint(1, 3)
    if definitions and kind < 0.3:
        key = rng.choice(sorted(definitions))
        return {"$ref": f"#/$defs/{key}"}, definitions[key][1]
    if kind < 0.36:
        schema, value = scalar(rng)
        return {"anyOf": [schema, {"type": "null"}]}, rng.choice((None, value))
    return scalar(rng)


def record(rng, depth, definitions, fields=None):
    properties, document = {}, {}
    for _ in range(fields or rng.randint(2, 9)):
        name = name_of(rng)
        if name not in properties:
            properties[name], document[name] = member(rng, depth, definitions)
    required = [name for name in properties if rng.random() < 0.75]
    kept = {name: value for name, value in document.items() if name in required or rng.random() < 0.6}
    return {"type": "object", "properties": properties, "required": required}, kept


def generated(count, seed):
    """Returns cases {"schema", "document"}: records of 3 to 25 fields, nested up to 3 deep."""
    rng = random.Random(seed)
    cases = []
    for _ in range(count):
        definitions = {name_of(rng): record(rng, 0, {}) for _ in range(rng.choice((0, 0, 1, 2)))}
        schema, document = record(rng, rng.randint(0, 3), definitions, rng.randint(3, 25))
        if definitions:
            schema["$defs"] = {name: one for name, (one, _) in definitions.items()}
        cases.append({"schema": schema, "document": json.dumps(document, ensure_ascii=False)})
    return cases


def public():
    """Returns the schemas that check-jsonschema (PyPI, Apache-2.0) carries of json.schemastore.org; none without it."""
    try:
        folder = importlib.resources.files("check_jsonschema.builtin_schemas") / "vendor"
        return [{"schema": json.loads(file.read_text(encoding="utf-8"))} for file in
                sorted(folder.iterdir(), key=str) if file.name.endswith(".json")]
    except ModuleNotFoundError:
        return []
