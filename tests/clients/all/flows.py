"""What the scripts of all clients share: the tool, the texts, and how flows are run and reported.

A script declares the flows of its client with `flow`, `tool_flows` and `not_offered`, and calls `main`. It runs with
the packages of its client, which all include pydantic."""
import argparse
import asyncio
import functools
import inspect
import json
import signal
import sys
import time
import traceback
import urllib.request
from typing import Literal

from pydantic import BaseModel

import scripted_model
from table import LINE

FLOW_SECONDS = 600  # for a load generator on a machine that also compiles; other flows need a few seconds

QUESTION = "What is the capital of France? Answer in one word."  # so that the answer ends
ARGUMENTS = {"city": "Bern", "days": 2}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CHOICES = {  # how each API writes the tool choice of a flow
    "chat": {"auto": "auto", "required": "required", "named": {"type": "function", "function": {"name": "weather"}}},
    "responses": {"auto": "auto", "required": "required", "named": {"type": "function", "name": "weather"}},
    "messages": {"auto": {"type": "auto"}, "required": {"type": "any"}, "named": {"type": "tool", "name": "weather"}},
}
NO_TOOLS = "completions have no tools and no response format"
AFTER_TOOL = scripted_model.DEFAULT_ANSWER


def say(*texts):
    """What makes the scripted model answer with these texts, one after another."""
    return "".join(f"<say>{text}</say>" for text in texts)


def call(name, arguments):
    """A tool call as the model writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


ASK_TOOL = "How is the weather in Bern? " + say(call("weather", ARGUMENTS))


def weather(city: str, days: int) -> str:
    """The weather of a city.

    Args:
        city: The name of the city.
        days: The number of days.
    """
    weather.calls.append({"city": city, "days": days})
    return f"rain in {city} for {days} days"


weather.calls = []  # of this flow


class Animal(BaseModel):
    """An animal."""

    name: str
    kind: Literal["cat", "dog"]
    legs: int


TOM = Animal(name="Tom", kind="cat", legs=4)
ASK_ANIMAL = "Describe a cat. " + say(TOM.model_dump_json())
ASK_TOOL_THEN_ANIMAL = "Describe a cat in Bern. " + say(call("weather", ARGUMENTS), TOM.model_dump_json())


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r}, wanted {wanted!r}")


def called_once():
    equal(weather.calls, [ARGUMENTS])


class Endpoint:
    """The HTTP APIs of a cluster."""

    def __init__(self, url):
        self.url = url
        self.v1 = url + "/v1"
        with urllib.request.urlopen(self.v1 + "/models", timeout=30) as answer:
            self.model = json.load(answer)["data"][0]["id"]


class Servers:
    """`real` has a small real model, `scripted` the model of scripted_model.py, whose files are in `scripted_model`."""

    def __init__(self, real, scripted, scripted_model):
        self.real = Endpoint(real)
        self.scripted = Endpoint(scripted)
        self.scripted_model = scripted_model


_declared = []  # api, flow, function, reason


def flow(api, name):
    """Declares the decorated function, which may be a coroutine, as the flow `name` of this API of the client."""
    def declare(function):
        _declared.append((api, name, function, ""))
        return function
    return declare


def tool_flows(api, round_trip, **choices):
    """Declares `round_trip(servers, choice)` as the flow of each name with its tool choice, such as auto="auto"."""
    for name, choice in choices.items():
        flow(api, name)(functools.partial(round_trip, choice=choice))


def not_offered(api, reason, *names):
    """Declares that the client itself cannot do these flows."""
    _declared.extend((api, name, None, reason) for name in names)


def _end_late_flow(_signal, _frame):
    raise TimeoutError(f"the flow took more than {FLOW_SECONDS} s")


def _run(function, servers):
    """Returns the outcome of a flow, and why it failed."""
    weather.calls.clear()
    signal.alarm(FLOW_SECONDS)
    try:
        result = function(servers)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        return "ok", ""
    except Exception as error:
        traceback.print_exc()
        return "FAILS", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def main():
    parser = argparse.ArgumentParser(description="Runs the flows of one client.")
    parser.add_argument("--real", required=True, help="URL of the cluster with a real model")
    parser.add_argument("--scripted", required=True, help="URL of the cluster with the scripted model")
    parser.add_argument("--scripted-model", required=True, help="folder of the scripted model")
    arguments = parser.parse_args()
    servers = Servers(arguments.real, arguments.scripted, arguments.scripted_model)
    signal.signal(signal.SIGALRM, _end_late_flow)
    failed = 0
    for api, name, function, reason in _declared:
        begin = time.monotonic()
        outcome = "-"
        if function is not None:
            print(f"--- {api}: {name}", file=sys.stderr, flush=True)
            outcome, reason = _run(function, servers)
        failed += outcome == "FAILS"
        report = {"api": api, "flow": name, "outcome": outcome, "reason": reason,
                  "seconds": round(time.monotonic() - begin, 2)}
        print(LINE + json.dumps(report), flush=True)
    sys.exit(1 if failed else 0)
