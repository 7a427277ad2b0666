"""Runs the command of a load generator against an endpoint, in a folder of its own."""
import json
import os
import pathlib
import subprocess
import sys

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
           "TOKENIZERS_PARALLELISM": "false"}


def run_command(folder, name, *arguments, environment=None):
    """Runs the console command `name` of this environment in `folder`. Raises an error with the end of its output."""
    command = [str(pathlib.Path(sys.executable).with_name(name)), *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    print(done.stdout, file=sys.stderr)
    if done.returncode != 0:
        raise AssertionError(f"{name} ended with status {done.returncode}: {done.stdout[-1500:]}")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
