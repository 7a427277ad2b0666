"""Counts which schemas of a public collection are refused, and why.

Usage: python3 collection.py BUILD/bin/grammar_collection FOLDER [--count 1500] [--seed 1] [--outputs 0]
FOLDER has JSON files with a member "schema", as maskbench/data of https://github.com/guidance-ai/jsonschemabench.
The files are drawn from their sorted names. With --outputs N, N random outputs of each grammar are validated with
jsonschema (the packages that `./dev clients` installs). Prints one JSON object; the groups of refusals count messages
without their paths, numbers and quoted names."""
import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))


def group_of(message):
    """The keyword and the reason of a refusal."""
    path, _, why = message.partition(": ")
    keyword = path.rsplit("/", 1)[-1] if "/" in path else ""
    why = re.sub(r"'[^']*'|\d+", "…", why or path)
    return f"{keyword if re.fullmatch(r'[$a-zA-Z]+', keyword) else '…'}: {why[:90]}"


def invalid_outputs(lines):
    """Messages about outputs that do not match their schemas, and the number of outputs that were validated."""
    import jsonschema
    import validate_outputs
    invalid, checked, unknown = [], 0, 0
    for line in lines:
        try:
            schema = validate_outputs.python_schema(line["schema"])
            kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            kind.check_schema(schema)
            validator = kind(schema, format_checker=validate_outputs.FORMATS)
            value = validate_outputs.parsed(line["output"])
            error = next(validator.iter_errors(value), None)
        except Exception as failure:  # the schema is not valid, or the validator cannot resolve it
            unknown += 1
            print(f"not validated: {str(failure)[:200]}", file=sys.stderr)
            continue
        checked += 1
        if error is not None:
            invalid.append(f"{line['output'][:200]}: {error.message[:200]}: {json.dumps(line['schema'])[:300]}")
    return invalid, checked, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of grammar_collection")
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outputs", type=int, default=0)
    options = parser.parse_args()
    names = sorted(path.name for path in pathlib.Path(options.folder).iterdir() if path.suffix == ".json")
    drawn = random.Random(options.seed).sample(names, min(options.count, len(names)))
    paths = "".join(f"{options.folder}/{name}\n" for name in drawn)
    command = [options.program, str(options.outputs)]
    run = subprocess.run(command, input=paths, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in run.stdout.split("\n") if line.startswith("{")]
    judged = [line for line in lines if "file" in line]
    refused = [line for line in judged if line["refused"] is not None]
    groups = collections.Counter(group_of(line["refused"]) for line in refused)
    result = {"files": len(names), "drawn": len(judged), "seed": options.seed, "refused": len(refused)}
    for kind in ("valid", "invalid"):
        counts = [line["accepted"][kind] for line in judged if line["refused"] is None]
        result[f"accepted_{kind}_data"] = [sum(pair[i] for pair in counts) for i in (0, 1)]
    result["groups"] = dict(groups.most_common())
    if options.outputs > 0:
        invalid, checked, unknown = invalid_outputs(line for line in lines if "output" in line)
        result.update({"outputs": checked, "not_validated": unknown, "invalid_outputs": invalid})
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
