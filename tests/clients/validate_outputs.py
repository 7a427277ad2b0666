"""Validates outputs against their JSON schemas with jsonschema.

Usage: validate_outputs.py FILE COUNT. Each of the COUNT lines of FILE is {"schema": …, "output": "…"}."""
import json
import sys

import jsonschema

# Formats that XGrammar and jsonschema define alike.
FORMATS = jsonschema.FormatChecker(["ipv4", "ipv6", "uuid", "email"])


def main(path, count):
    validators = {}
    invalid = 0
    checked = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            case = json.loads(line)
            key = json.dumps(case["schema"])
            if key not in validators:
                jsonschema.Draft202012Validator.check_schema(case["schema"])
                validators[key] = jsonschema.Draft202012Validator(
                    case["schema"], format_checker=FORMATS)
            checked += 1
            try:
                validators[key].validate(json.loads(case["output"]))
            except (ValueError, jsonschema.ValidationError) as error:
                invalid += 1
                if invalid <= 5:
                    print(f"INVALID: {case['output'][:300]!r}: {str(error)[:300]}\n  {key[:300]}")
    print(f"{checked} outputs of {len(validators)} schemas, {invalid} invalid")
    sys.exit(1 if invalid or checked != count else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
