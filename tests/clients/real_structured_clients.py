"""Structured output and forced calls of tools with the official clients and LangChain, against a
cluster with the real model. The model is small: the grammar alone makes its answers valid.

Usage: real_structured_clients.py http://HOST:PORT"""
import json
import sys
import time
from typing import Literal, Optional

import anthropic
import jsonschema
import openai
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from checks import equal, run

QUESTION = [{"role": "user", "content": "Call the tool weather for the city of Paris."}]
PARAMETERS = {"type": "object",
              "properties": {"city": {"type": "string", "maxLength": 20},
                             "unit": {"enum": ["C", "F"]}},
              "required": ["city", "unit"]}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now", "description": "The time."}}]


class Animal(BaseModel):
    """An animal."""
    name: str = Field(max_length=12)
    kind: Literal["cat", "dog"]
    legs: int = Field(ge=0, le=8)
    owner: Optional[bool]


def client_of(address):
    return openai.OpenAI(base_url=address + "/v1", api_key="none")


def model_of(address):
    return client_of(address).models.list().data[0].id


def check_parse(address):
    client = client_of(address)
    for seed in range(3):
        answer = client.chat.completions.parse(
            model=model_of(address), messages=QUESTION, response_format=Animal, max_tokens=200,
            temperature=2, seed=seed)
        assert isinstance(answer.choices[0].message.parsed, Animal), answer
        equal(answer.choices[0].finish_reason, "stop")
    response = client.responses.parse(
        model=model_of(address), input=QUESTION, text_format=Animal, max_output_tokens=200)
    assert isinstance(response.output_parsed, Animal), response


def check_stream(address):
    client = client_of(address)
    options = {"model": model_of(address), "messages": QUESTION, "temperature": 0,
               "max_tokens": 200}
    whole = client.chat.completions.parse(response_format=Animal, **options)
    with client.chat.completions.stream(response_format=Animal, **options) as stream:
        for _ in stream:
            pass
        equal(stream.get_final_completion().choices[0].message.parsed,
              whole.choices[0].message.parsed)


def check_vllm_members(address):
    client = client_of(address)
    options = {"model": model_of(address), "messages": QUESTION, "max_tokens": 60}
    for body, valid in [
            ({"structured_outputs": {"choice": ["yes", "no"]}}, lambda text: text in ("yes", "no")),
            ({"structured_outputs": {"regex": "[A-Z]{3}-[0-9]{2}"}},
             lambda text: len(text) == 6 and text[3] == "-" and text[4:].isdigit()),
            ({"guided_grammar": 'root ::= "<" [a-c]{2} ">"'},
             lambda text: len(text) == 4 and set(text[1:3]) <= set("abc")),
            ({"guided_json": {"type": "integer", "minimum": 5, "maximum": 7}},
             lambda text: int(text) in (5, 6, 7))]:
        text = client.chat.completions.create(extra_body=body, **options).choices[0].message.content
        assert valid(text), (body, text)
    both = client.chat.completions.create(
        extra_body={"guided_choice": ["left", "right"]}, n=4, temperature=2, **options)
    assert all(one.message.content in ("left", "right") for one in both.choices), both


def check_forced_calls(address):
    client = client_of(address)
    options = {"model": model_of(address), "messages": QUESTION, "tools": TOOLS, "max_tokens": 120}
    for choice, names in [("required", ("weather", "now")),
                          ({"type": "function", "function": {"name": "weather"}}, ("weather",))]:
        for seed in range(3):
            message = client.chat.completions.create(
                tool_choice=choice, seed=seed, parallel_tool_calls=False, **options).choices[0]
            equal(message.finish_reason, "tool_calls")
            equal(len(message.message.tool_calls), 1)
            call = message.message.tool_calls[0].function
            assert call.name in names, call
            if call.name == "weather":
                jsonschema.validate(json.loads(call.arguments), PARAMETERS)
            else:
                equal(json.loads(call.arguments), {})
    arguments = ""
    for chunk in client.chat.completions.create(
            tool_choice={"type": "function", "function": {"name": "weather"}},
            parallel_tool_calls=False, stream=True, **options):
        for call in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            arguments += call.function.arguments or ""
    jsonschema.validate(json.loads(arguments), PARAMETERS)


def check_tool_loop(address):
    """Two forced calls and their results, then the answer."""
    client = client_of(address)
    messages = list(QUESTION)
    for _ in range(2):
        message = client.chat.completions.create(
            model=model_of(address), messages=messages, tools=TOOLS, tool_choice="required",
            parallel_tool_calls=False, max_tokens=120).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            json.loads(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "It rains."})
    end = client.chat.completions.create(
        model=model_of(address), messages=messages, tools=TOOLS, tool_choice="none", temperature=0,
        max_tokens=40)
    assert end.choices[0].message.content, end


def check_anthropic(address):
    claude = anthropic.Anthropic(base_url=address, api_key="none")
    tools = [{"name": "weather", "input_schema": PARAMETERS}]
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        message = claude.messages.create(
            model=model_of(address), max_tokens=120, messages=QUESTION, tools=tools,
            tool_choice={**choice, "disable_parallel_tool_use": True})
        equal(message.stop_reason, "tool_use")
        calls = [block for block in message.content if block.type == "tool_use"]
        equal(len(calls), 1)
        jsonschema.validate(calls[0].input, PARAMETERS)
    message = claude.messages.create(
        model=model_of(address), max_tokens=120, messages=QUESTION,
        extra_body={"output_config": {"format": {"type": "json_schema", "schema": PARAMETERS}}})
    jsonschema.validate(json.loads(message.content[0].text), PARAMETERS)


def check_langchain(address):
    model = ChatOpenAI(base_url=address + "/v1", api_key="none", model=model_of(address),
                       max_tokens=200, temperature=0)
    for method in ("json_schema", "function_calling"):
        structured = model.with_structured_output(Animal, method=method)
        answer = structured.invoke("Describe a cat.")
        assert isinstance(answer, Animal), (method, answer)
    # The grammar is any JSON object, so the members, and the length, are the model's own.
    try:
        raw = model.with_structured_output(None, method="json_mode", include_raw=True).invoke(
            "Write a JSON object with the member name.")
        assert isinstance(json.loads(raw["raw"].content), dict), raw
    except openai.LengthFinishReasonError as error:
        text = error.completion.choices[0].message.content
        assert text.startswith("{"), text


def check_refusals(address):
    client = client_of(address)
    for body, parameter in [
            ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json"),
            ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
            ({"guided_regex": "(a{999}){999}"}, "guided_regex")]:
        try:
            client.chat.completions.create(
                model=model_of(address), messages=QUESTION, extra_body=body)
            raise AssertionError(f"{body} was not refused")
        except openai.BadRequestError as error:
            equal(error.param, parameter)


# What once held a router's or a worker's thread for minutes, gave text that is no JSON, or failed as an error
# of the model. Each is refused at once, by the client's fault.
ENDLESS = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
DEAR = {"type": "object", "minProperties": 400, "properties": {f"p{i}": {"type": "null"} for i in range(800)}}
CHAIN = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(9000)} | {"d9000": {"type": "null"}}
HOSTILE = [
    ({"guided_json": {"$ref": "#/default", "default": DEAR}}, "are not schemas"),
    ({"guided_json": {"$ref": "#/title", "title": {"type": "string", "pattern": "(.{1000}){1000}"}}}, "are not schemas"),
    ({"guided_json": {"$ref": "#/$defs/d0", "$defs": CHAIN}}, ""),
    ({"guided_json": ENDLESS}, "allows no output"),
    ({"guided_grammar": "root ::= root"}, "allows no output"),
    ({"guided_grammar": 'root ::= "ab" x\nx ::= x'}, "allows no output"),
    ({"guided_regex": "[^\\x00-\\U0010FFFF]"}, "allows no output"),
]


def check_hostile_grammars(address):
    client = client_of(address)
    for body, reason in HOSTILE:
        begin = time.monotonic()
        try:
            client.with_options(max_retries=0, timeout=20).chat.completions.create(
                model=model_of(address), messages=QUESTION, max_tokens=8, extra_body=body)
            raise AssertionError(f"{str(body)[:200]} was not refused")
        except openai.BadRequestError as error:
            assert reason in str(error), error
        took = time.monotonic() - begin
        assert took < 5, f"{str(body)[:200]} took {took:.1f} s"


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1])
