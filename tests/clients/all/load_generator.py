"""Runs the command of a load generator against an endpoint, in a folder of its own."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
           "TOKENIZERS_PARALLELISM": "false"}


def run_command(folder, name, *arguments, environment=None):
    """Runs the console command `name` of this environment in `folder`. Raises an error with the end of its output.

    When the flow takes too long, all processes of the command end with it."""
    command = [str(pathlib.Path(sys.executable).with_name(name)), *arguments]
    path = pathlib.Path(folder, "output.txt")
    with open(path, "wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **(environment or {})},
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    try:
        status = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        text = path.read_text(encoding="utf-8", errors="replace")
        print(text, file=sys.stderr)
    if status != 0:
        raise AssertionError(f"{name} ended with status {status}: {text[-1500:]}")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
