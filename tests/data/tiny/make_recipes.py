"""Replaces each gguf/NAME.gguf by gguf/NAME.recipe: the runs of bytes that the file has in common with NAME/model.safetensors, and the others.

A GGUF file of a tiny model has the numbers of the safetensors file in another order, so a recipe is much smaller. Files of which a recipe
would have more than half of the size stay: their numbers are others. tests/support/gguf_recipe.h makes the file again.

Usage: python make_recipes.py   (after make_ggufs.py and convert_ggufs.py)
"""
import base64
import json
import pathlib

HERE = pathlib.Path(__file__).parent
UNIT = 4      # bytes: runs begin at multiples
SHORTEST = 48  # bytes: shorter runs are written out


def recipe_of(gguf, source):
    """Runs [place in the source, bytes] and [-1, bytes], and the bytes of the latter."""
    places = {}
    for at in range(0, len(source) - SHORTEST + 1, UNIT):
        places.setdefault(source[at:at + SHORTEST], at)
    runs, literals, at = [], bytearray(), 0
    while at < len(gguf):
        place = places.get(gguf[at:at + SHORTEST])
        if place is None:
            literals += gguf[at:at + UNIT]
            if runs and runs[-1][0] < 0:
                runs[-1][1] += len(gguf[at:at + UNIT])
            else:
                runs.append([-1, len(gguf[at:at + UNIT])])
            at += UNIT
            continue
        end, to = at + SHORTEST, place + SHORTEST
        while end + UNIT <= len(gguf) and to + UNIT <= len(source) and gguf[end:end + UNIT] == source[to:to + UNIT]:
            end, to = end + UNIT, to + UNIT
        if runs and runs[-1][0] >= 0 and runs[-1][0] + runs[-1][1] == place:
            runs[-1][1] += end - at
        else:
            runs.append([place, end - at])
        at = end
    return runs, bytes(literals)


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def main():
    for path in sorted((HERE / "gguf").glob("*.gguf")):
        gguf = path.read_bytes()
        source = (HERE / path.stem / "model.safetensors").read_bytes()
        # The tensors of the source begin at a multiple of the unit after padding its beginning.
        shift = (8 + int.from_bytes(source[:8], "little")) % UNIT
        runs, literals = recipe_of(gguf, source[shift:])
        runs = [[place + shift if place >= 0 else -1, size] for place, size in runs]
        document = {"fnv1a": fnv1a(gguf), "runs": runs, "literals": base64.b64encode(literals).decode()}
        text = json.dumps(document, separators=(",", ":")) + "\n"
        if len(text) * 2 > len(gguf):
            continue
        path.with_suffix(".recipe").write_text(text)
        path.unlink()
        print(path.stem, len(gguf), len(text), len(runs))


if __name__ == "__main__":
    main()
