"""The command `llm` with the model entry that its manual states for servers with OpenAI's API,
against a cluster with the real model.

Usage: llm_command.py http://HOST:PORT"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import jsonschema

from checks import equal, run

QUESTION = "What is the capital of France?"
OPTIONS = ["-o", "temperature", "0", "-o", "max_tokens", "24"]
ENTRY = """
- model_id: cluster
  model_name: {model}
  api_base: {address}/v1
  supports_schema: true
"""
# Every answer that this schema allows is short: without bounds a small model may write digits until max_tokens.
CAT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 40},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@contextlib.contextmanager
def command_for(address):
    """A function that runs `llm` with arguments and returns its output, in a folder of its own."""
    with urllib.request.urlopen(address + "/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(ENTRY.format(model=model, address=address))

        def llm(*arguments, stdin=""):
            done = subprocess.run([sys.executable, "-m", "llm", *arguments], input=stdin, capture_output=True, text=True,
                                  timeout=120, env={**os.environ, "LLM_USER_PATH": folder})
            equal((done.returncode, done.stderr), (0, ""))
            return done.stdout.strip()
        yield llm


def check_prompt(address):
    with command_for(address) as llm:
        streamed = llm("-m", "cluster", *OPTIONS, QUESTION)
        assert "Paris" in streamed, streamed
        equal(llm("-m", "cluster", "--no-stream", *OPTIONS, QUESTION), streamed)
        equal(llm("-m", "cluster", *OPTIONS, stdin=QUESTION), streamed)


def check_conversation(address):
    with command_for(address) as llm:
        llm("-m", "cluster", *OPTIONS, QUESTION)
        goes_on = llm("-c", *OPTIONS, "Repeat your last answer.")
        assert "Paris" in goes_on, goes_on


def check_schema(address):
    with command_for(address) as llm:
        text = llm("-m", "cluster", "-o", "temperature", "0", "-o", "max_tokens", "200", "--schema", json.dumps(CAT),
                   "Invent a cat.")
        jsonschema.validate(json.loads(text), CAT)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1])
