"""The official clients against a cluster with the real model and a chat template that offers tools.

The model is small: it may call the tool or not. Usage: real_tools_clients.py http://HOST:PORT"""
import json
import sys

import openai

from checks import equal, run

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def client_of(address):
    return openai.OpenAI(base_url=address + "/v1", api_key="none")


def messages_of():
    return [{"role": "user", "content": "Call the tool weather for the city of Paris."}]


def check_prompt_offers_the_tools(address):
    client = client_of(address)
    counts = [client.post("/../tokenize", cast_to=object, body={"messages": messages_of(), **extra})
              for extra in ({}, {"tools": TOOLS})]
    assert counts[1]["count"] > counts[0]["count"] + 50, [one["count"] for one in counts]


def check_tools(address):
    client = client_of(address)
    model = client.models.list().data[0].id
    for seed in range(5):
        options = {"model": model, "messages": messages_of(), "tools": TOOLS, "seed": seed,
                   "max_tokens": 60}
        choice = client.chat.completions.create(**options).choices[0]
        calls = choice.message.tool_calls or []
        for call in calls:
            assert isinstance(json.loads(call.function.arguments), dict), call
        if choice.finish_reason != "length":
            equal(choice.finish_reason, "tool_calls" if calls else "stop")
        content = ""
        names = []
        for chunk in client.chat.completions.create(stream=True, **options):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            names += [call.function.name for call in delta.tool_calls or [] if call.function.name]
        if not calls and not names:
            equal(content, choice.message.content)
        print(f"seed {seed}: {len(calls)} calls, {choice.finish_reason}")


def check_history(address):
    client = client_of(address)
    call = {"id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    history = messages_of() + [{"role": "assistant", "content": None, "tool_calls": [call]},
                               {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}]
    answer = client.chat.completions.create(
        model=client.models.list().data[0].id, messages=history, tools=TOOLS, temperature=0,
        max_tokens=40)
    assert answer.choices[0].message.content, answer


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1])
