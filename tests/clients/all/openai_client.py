"""The official client of OpenAI."""
import json

import openai

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, NO_TOOLS, PARAMETERS, QUESTION, TOM, Animal, called_once, equal,
                   flow, main, not_offered, weather)

TOOL = {"name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
RESPONSE_TOOLS = [{"type": "function", "strict": False, **TOOL}]


def client_of(endpoint):
    return openai.OpenAI(base_url=endpoint.v1, api_key="none")


def chat_options(endpoint, text):
    return {"model": endpoint.model, "messages": [{"role": "user", "content": text}], "temperature": 0,
            "max_tokens": 200}


def response_options(endpoint, text):
    return {"model": endpoint.model, "input": [{"role": "user", "content": text}], "temperature": 0,
            "max_output_tokens": 200}


@flow("chat", "plain")
def chat_plain(servers):
    answer = client_of(servers.real).chat.completions.create(**chat_options(servers.real, QUESTION))
    assert answer.choices[0].message.content, answer
    equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@flow("chat", "stream")
def chat_stream(servers):
    client, options = client_of(servers.real), chat_options(servers.real, QUESTION)
    chunks = list(client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    equal(text, client.chat.completions.create(**options).choices[0].message.content)
    assert chunks[-1].usage.completion_tokens > 0, chunks[-1]


def chat_round_trip(servers, choice):
    client, options = client_of(servers.scripted), chat_options(servers.scripted, ASK_TOOL)
    options["tools"] = CHAT_TOOLS
    answer = client.chat.completions.create(tool_choice=choice, **options).choices[0]
    equal(answer.finish_reason, "tool_calls")
    with client.chat.completions.stream(tool_choice=choice, **options) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message
    equal([one.function.arguments for one in streamed.tool_calls],
          [one.function.arguments for one in answer.message.tool_calls])
    options["messages"].append(answer.message)
    for one in answer.message.tool_calls:
        result = weather(**json.loads(one.function.arguments))
        options["messages"].append({"role": "tool", "tool_call_id": one.id, "content": result})
    called_once()
    equal(client.chat.completions.create(**options).choices[0].message.content, AFTER_TOOL)


@flow("chat", "auto")
def chat_auto(servers):
    chat_round_trip(servers, "auto")


@flow("chat", "required")
def chat_required(servers):
    chat_round_trip(servers, "required")


@flow("chat", "named")
def chat_named(servers):
    chat_round_trip(servers, {"type": "function", "function": {"name": "weather"}})


@flow("chat", "structured")
def chat_structured(servers):
    client, options = client_of(servers.scripted), chat_options(servers.scripted, ASK_ANIMAL)
    equal(client.chat.completions.parse(response_format=Animal, **options).choices[0].message.parsed, TOM)
    with client.chat.completions.stream(response_format=Animal, **options) as stream:
        for _ in stream:
            pass
        equal(stream.get_final_completion().choices[0].message.parsed, TOM)


@flow("chat", "logprobs")
def chat_logprobs(servers):
    client, options = client_of(servers.real), chat_options(servers.real, QUESTION)
    choice = client.chat.completions.create(logprobs=True, top_logprobs=2, **options).choices[0]
    text = choice.message.content
    equal("".join(token.token for token in choice.logprobs.content)[:len(text)], text)
    assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content), choice


@flow("responses", "plain")
def responses_plain(servers):
    answer = client_of(servers.real).responses.create(**response_options(servers.real, QUESTION))
    assert answer.output_text, answer


@flow("responses", "stream")
def responses_stream(servers):
    client, options = client_of(servers.real), response_options(servers.real, QUESTION)
    with client.responses.stream(**options) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    equal(text, final.output_text)
    equal(text, client.responses.create(**options).output_text)


def responses_round_trip(servers, choice):
    client, options = client_of(servers.scripted), response_options(servers.scripted, ASK_TOOL)
    options["tools"] = RESPONSE_TOOLS
    answer = client.responses.create(tool_choice=choice, **options)
    with client.responses.stream(tool_choice=choice, **options) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    calls = [item for item in answer.output if item.type == "function_call"]
    equal([item.arguments for item in streamed.output if item.type == "function_call"],
          [one.arguments for one in calls])
    options["input"] += answer.output
    for one in calls:
        result = weather(**json.loads(one.arguments))
        options["input"].append({"type": "function_call_output", "call_id": one.call_id, "output": result})
    called_once()
    equal(client.responses.create(**options).output_text, AFTER_TOOL)


@flow("responses", "auto")
def responses_auto(servers):
    responses_round_trip(servers, "auto")


@flow("responses", "required")
def responses_required(servers):
    responses_round_trip(servers, "required")


@flow("responses", "named")
def responses_named(servers):
    responses_round_trip(servers, {"type": "function", "name": "weather"})


@flow("responses", "structured")
def responses_structured(servers):
    client, options = client_of(servers.scripted), response_options(servers.scripted, ASK_ANIMAL)
    equal(client.responses.parse(text_format=Animal, **options).output_parsed, TOM)
    with client.responses.stream(text_format=Animal, **options) as stream:
        equal(stream.get_final_response().output_parsed, TOM)


@flow("responses", "logprobs")
def responses_logprobs(servers):
    answer = client_of(servers.real).responses.create(
        include=["message.output_text.logprobs"], top_logprobs=2, **response_options(servers.real, QUESTION))
    tokens = answer.output[-1].content[0].logprobs
    assert tokens and all(len(token.top_logprobs) == 2 for token in tokens), answer


@flow("completions", "plain")
def completions_plain(servers):
    answer = client_of(servers.real).completions.create(
        model=servers.real.model, prompt=["The sky is", "The sea is"], temperature=0, max_tokens=8)
    equal([choice.index for choice in answer.choices], [0, 1])
    assert all(choice.text for choice in answer.choices), answer


@flow("completions", "stream")
def completions_stream(servers):
    client = client_of(servers.real)
    options = {"model": servers.real.model, "prompt": "The sky is", "temperature": 0, "max_tokens": 8}
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(stream=True, **options))
    equal(text, client.completions.create(**options).choices[0].text)


@flow("completions", "logprobs")
def completions_logprobs(servers):
    answer = client_of(servers.real).completions.create(
        model=servers.real.model, prompt="The sky is", echo=True, logprobs=2, temperature=0, max_tokens=4)
    tokens = answer.choices[0].logprobs
    equal(tokens.token_logprobs[0], None)
    equal("".join(tokens.tokens), answer.choices[0].text)


not_offered("completions", NO_TOOLS, "auto", "required", "named", "structured")

if __name__ == "__main__":
    main()
