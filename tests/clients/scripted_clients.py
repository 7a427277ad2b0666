"""The official clients against a router whose worker answers by a script: see clients_test.cc.

Usage: scripted_clients.py http://HOST:PORT"""
import json
import sys
import threading
import time

import anthropic
import openai
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from checks import equal, run

MODEL = "bytes"
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
RESPONSE_TOOLS = [{"type": "function", **TOOL}]
MESSAGE_TOOLS = [{"name": "weather", "description": "d", "input_schema": TOOL["parameters"]}]
ARGUMENTS = {"city": "Bern", "days": 2}


def client_of(address, **options):
    return openai.OpenAI(base_url=address + "/v1", api_key="none", **options)


def claude_of(address, **options):
    return anthropic.Anthropic(base_url=address, api_key="none", **options)


def user(text):
    return [{"role": "user", "content": text}]


def check_chat_loop(address):
    client = client_of(address)
    messages = user("Weather?")
    for turn in range(2):
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=CHAT_TOOLS)
        choice = answer.choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if choice.finish_reason != "tool_calls":
            break
        equal(choice.message.content, "Let me look.")
        equal(choice.message.reasoning_content, "I need the weather.")
        for call in choice.message.tool_calls:
            equal(call.function.name, "weather")
            equal(json.loads(call.function.arguments), ARGUMENTS)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
    equal(turn, 1)
    equal(choice.finish_reason, "stop")
    equal(choice.message.content, "It rains in Bern.")


def check_chat_stream(address):
    client = client_of(address)
    with client.chat.completions.stream(
        model=MODEL, messages=user("Weather?"), tools=CHAT_TOOLS, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    message = final.choices[0].message
    equal(json.loads(message.tool_calls[0].function.arguments), ARGUMENTS)
    equal(final.choices[0].finish_reason, "tool_calls")
    assert "tool_calls.function.arguments.delta" in kinds, kinds
    assert final.usage.prompt_tokens > 0, final.usage


def check_two_calls_and_one(address):
    client = client_of(address)
    both = client.chat.completions.create(model=MODEL, messages=user("Twice"), tools=CHAT_TOOLS)
    equal(len(both.choices[0].message.tool_calls), 2)
    one = client.chat.completions.create(
        model=MODEL, messages=user("Twice"), tools=CHAT_TOOLS, parallel_tool_calls=False
    )
    equal(len(one.choices[0].message.tool_calls), 1)
    equal(one.choices[0].finish_reason, "tool_calls")


def check_broken_call(address):
    answer = client_of(address).chat.completions.create(
        model=MODEL, messages=user("Broken"), tools=CHAT_TOOLS
    )
    equal(answer.choices[0].message.tool_calls, None)
    equal(answer.choices[0].message.content, '<tool_call>{"name": weather}</tool_call>')
    equal(answer.choices[0].finish_reason, "stop")


def without_ids(value):
    """The JSON of a client's object without what differs between two requests."""
    if isinstance(value, list):
        return [without_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without_ids(one) for name, one in value.items()
            if one is not None and name not in ("id", "call_id", "index", "parsed_arguments", "parsed")}


def equal_objects(streamed, whole):
    equal(without_ids(streamed.to_dict()), without_ids(whole.to_dict()))


def check_failed_calls_are_alike_in_streams_and_bodies(address):
    client = client_of(address)
    claude = claude_of(address)
    for text in ("Failed", "Cut", "Weather?"):
        chat = {"model": MODEL, "messages": user(text), "tools": CHAT_TOOLS}
        body = client.chat.completions.create(**chat).choices[0]
        with client.chat.completions.stream(**chat) as stream:
            for _ in stream:
                pass
            # Not get_final_completion, which raises an error for an answer that was cut off.
            streamed = stream.current_completion_snapshot.choices[0]
        equal_objects(streamed.message, body.message)
        equal(streamed.finish_reason, body.finish_reason)
        responses = {"model": MODEL, "input": text, "tools": RESPONSE_TOOLS}
        body = client.responses.create(**responses)
        with client.responses.stream(**responses) as stream:
            events = list(stream)
        equal(without_ids([item.to_dict() for item in events[-1].response.output]),
              without_ids([item.to_dict() for item in body.output]))
        equal(events[-1].response.status, body.status)
        messages = {"model": MODEL, "max_tokens": 500, "messages": user(text), "tools": MESSAGE_TOOLS}
        body = claude.messages.create(**messages)
        with claude.messages.stream(**messages) as stream:
            streamed = stream.get_final_message()
        equal(without_ids(streamed.to_dict()["content"]), without_ids(body.to_dict()["content"]))
        equal(streamed.stop_reason, body.stop_reason)


def check_failed_calls_are_not_run(address):
    client = client_of(address)
    for text, finish in (("Failed", "stop"), ("Cut", "length")):
        choice = client.chat.completions.create(
            model=MODEL, messages=user(text), tools=CHAT_TOOLS).choices[0]
        equal(choice.finish_reason, finish)
        assert choice.message.content.startswith("Look"), choice
        arguments = choice.message.tool_calls[0].function.arguments
        try:
            json.loads(arguments)
            raise AssertionError(f"{arguments} can be run")
        except json.JSONDecodeError:
            pass
        answer = claude_of(address).messages.create(
            model=MODEL, max_tokens=500, messages=user(text), tools=MESSAGE_TOOLS)
        equal([block.type for block in answer.content], ["text"])
    for responses in (False, True):
        model = ChatOpenAI(base_url=address + "/v1", api_key="none", model=MODEL,
                           use_responses_api=responses).bind_tools([weather])
        for answer in (model.invoke("Failed"), sum_of(model.stream("Failed"))):
            equal(answer.tool_calls, [])


def sum_of(chunks):
    total = None
    for chunk in chunks:
        total = chunk if total is None else total + chunk
    return total


async def check_async(address):
    async with openai.AsyncOpenAI(base_url=address + "/v1", api_key="none") as client:
        answer = await client.chat.completions.create(model=MODEL, messages=user("Hi"))
        equal(answer.choices[0].message.content, "Hello there.")
        text = ""
        async for chunk in await client.chat.completions.create(
            model=MODEL, messages=user("Hi"), stream=True
        ):
            text += chunk.choices[0].delta.content or ""
        equal(text, "Hello there.")


def check_responses_loop(address):
    client = client_of(address)
    items = user("Weather?")
    answer = client.responses.create(model=MODEL, input=items, tools=RESPONSE_TOOLS)
    equal([item.type for item in answer.output], ["reasoning", "message", "function_call"])
    call = answer.output[2]
    equal(json.loads(call.arguments), ARGUMENTS)
    items += [item.model_dump(exclude_none=True) for item in answer.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    answer = client.responses.create(model=MODEL, input=items, tools=RESPONSE_TOOLS)
    equal(answer.output_text, "It rains in Bern.")
    equal(answer.status, "completed")


def check_responses_stream(address):
    with client_of(address).responses.stream(
        model=MODEL, input="Weather?", tools=RESPONSE_TOOLS
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    equal(json.loads(final.output[2].arguments), ARGUMENTS)
    equal(kinds[-1], "response.completed")
    for kind in ("response.reasoning_text.delta", "response.output_text.delta"):
        assert kind in kinds, kinds


def check_messages_loop(address):
    client = claude_of(address)
    messages = user("Weather?")
    options = {"model": MODEL, "max_tokens": 500, "tools": MESSAGE_TOOLS}
    answer = client.messages.create(messages=messages, **options)
    equal([block.type for block in answer.content], ["thinking", "text", "tool_use"])
    equal(answer.stop_reason, "tool_use")
    equal(answer.content[2].input, ARGUMENTS)
    messages.append({"role": "assistant", "content": answer.content})
    result = {"type": "tool_result", "tool_use_id": answer.content[2].id, "content": "rain"}
    messages.append({"role": "user", "content": [result]})
    answer = client.messages.create(messages=messages, **options)
    equal(answer.content[0].text, "It rains in Bern.")
    equal(answer.stop_reason, "end_turn")


def check_messages_stream(address):
    client = claude_of(address)
    with client.messages.stream(
        model=MODEL, max_tokens=500, messages=user("Weather?"), tools=MESSAGE_TOOLS
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    equal(final.content[2].input, ARGUMENTS)
    equal(final.stop_reason, "tool_use")
    assert {"thinking", "text", "input_json"} <= kinds, kinds
    assert client.messages.count_tokens(model=MODEL, messages=user("Hi")).input_tokens == 8
    assert client.messages.create(model=MODEL, max_tokens=9, messages=user("Hi"))._request_id


@anthropic.beta_tool(name="weather")
def weather_tool(city: str, days: int) -> str:
    """The weather of a city."""
    return f"rain in {city} for {days} days"


def check_tool_runner(address):
    runner = claude_of(address).beta.messages.tool_runner(
        model=MODEL, max_tokens=500, messages=user("Weather?"), tools=[weather_tool])
    equal(runner.until_done().content[0].text, "It rains in Bern.")


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"rain for {days} days"


def check_langchain_loop(address):
    for responses in (False, True):
        model = ChatOpenAI(base_url=address + "/v1", api_key="none", model=MODEL,
                           use_responses_api=responses).bind_tools([weather])
        messages = [HumanMessage("Weather?")]
        answer = model.invoke(messages)
        equal([(call["name"], call["args"]) for call in answer.tool_calls], [("weather", ARGUMENTS)])
        messages += [answer] + [weather.invoke(call) for call in answer.tool_calls]
        equal(model.invoke(messages).text, "It rains in Bern.")


def check_errors(address):
    client = client_of(address)
    for call, parameter in [
        (lambda: client.chat.completions.create(
            model=MODEL, messages=user("x"), tools=CHAT_TOOLS,
            tool_choice={"type": "function", "function": {"name": "other"}}), "tool_choice"),
        (lambda: client.chat.completions.create(
            model=MODEL, messages=user("x"), tools=CHAT_TOOLS, tool_choice={
                "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                    {"type": "function", "function": {"name": "other"}}]}}),
         "tool_choice.allowed_tools.tools[0]"),
        (lambda: client.chat.completions.create(
            model=MODEL, messages=user("x"), response_format={"type": "json_schema", "json_schema": {
                "name": "x", "schema": {"type": "array", "uniqueItems": True}}}),
         "response_format.json_schema.schema"),
        (lambda: client.responses.create(model=MODEL, input="x", previous_response_id="resp_1"),
         "previous_response_id"),
        (lambda: client.completions.create(model=MODEL, prompt="x", suffix="y"), "suffix"),
    ]:
        try:
            call()
            raise AssertionError(f"{parameter} was not refused")
        except openai.BadRequestError as error:
            equal(error.param, parameter)
    try:
        client.chat.completions.create(model="other", messages=user("x"))
        raise AssertionError("another model was not refused")
    except openai.NotFoundError as error:
        equal(error.code, "model_not_found")
    try:
        claude_of(address).messages.create(model="other", max_tokens=1, messages=user("x"))
        raise AssertionError("another model was not refused")
    except anthropic.NotFoundError as error:
        equal(error.body["error"]["type"], "not_found_error")


def check_time_out(address):
    try:
        client_of(address, timeout=0.3, max_retries=0).chat.completions.create(
            model=MODEL, messages=user("Slow"))
        raise AssertionError("the client did not time out")
    except openai.APITimeoutError:
        pass
    try:
        # max_requests is 1, and the router frees the place of a client that left at once.
        client_of(address, max_retries=3).chat.completions.create(
            model=MODEL, messages=user("Slow"), extra_body={"timeout_ms": 200})
        raise AssertionError("the router did not end the request")
    except openai.InternalServerError as error:
        equal(error.status_code, 504)


def check_retries(address):
    slow = threading.Thread(
        target=lambda: client_of(address, max_retries=5).chat.completions.create(
            model=MODEL, messages=user("Slow")))
    slow.start()
    time.sleep(0.3)
    try:
        client_of(address, max_retries=0).chat.completions.create(model=MODEL, messages=user("Hi"))
        raise AssertionError("a second request was admitted; max_requests is 1")
    except openai.RateLimitError as error:
        equal(error.response.headers["retry-after"], "1")
    answer = client_of(address, max_retries=5).chat.completions.create(model=MODEL, messages=user("Hi"))
    equal(answer.choices[0].message.content, "Hello there.")
    slow.join()


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1])
