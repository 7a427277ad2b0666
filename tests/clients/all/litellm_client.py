"""litellm, by its providers for servers with these APIs."""
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched from elsewhere

import litellm

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, NO_TOOLS, PARAMETERS, QUESTION, TOM, Animal, call, called_once,
                   equal, flow, main, not_offered, say, weather)

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS}}]
NAMED = {"type": "function", "function": {"name": "weather"}}
# What litellm calls the tool by which a provider without a response format answers.
ASK_JSON_TOOL = "Describe a cat. " + say(call("json_tool_call", TOM.model_dump()))


def options_of(provider, endpoint, text):
    return {"model": f"{provider}/{endpoint.model}", "api_key": "none", "max_tokens": 200, "max_retries": 0,
            "api_base": endpoint.url if provider == "anthropic" else endpoint.v1,
            "messages": [{"role": "user", "content": text}]}


def streamed(options, **more):
    return litellm.stream_chunk_builder(list(litellm.completion(stream=True, **options, **more))).choices[0].message


def round_trip(provider, servers, choice):
    options = options_of(provider, servers.scripted, ASK_TOOL)
    options["tools"] = TOOLS
    message = litellm.completion(tool_choice=choice, **options).choices[0].message
    equal([one.function.arguments for one in streamed(options, tool_choice=choice).tool_calls],
          [one.function.arguments for one in message.tool_calls])
    options["messages"].append(message.model_dump(exclude_none=True))
    for one in message.tool_calls:
        result = weather(**json.loads(one.function.arguments))
        options["messages"].append({"role": "tool", "tool_call_id": one.id, "content": result})
    called_once()
    equal(litellm.completion(**options).choices[0].message.content, AFTER_TOOL)


def declare(provider):
    @flow(provider, "plain")
    def plain(servers):
        answer = litellm.completion(**options_of(provider, servers.real, QUESTION))
        assert answer.choices[0].message.content, answer
        assert answer.usage.completion_tokens > 0, answer

    @flow(provider, "stream")
    def stream(servers):
        assert streamed(options_of(provider, servers.real, QUESTION)).content

    for name, choice in (("auto", "auto"), ("required", "required"), ("named", NAMED)):
        @flow(provider, name)
        def tools(servers, choice=choice):
            round_trip(provider, servers, choice)

    @flow(provider, "structured")
    def structured(servers):
        question = ASK_JSON_TOOL if provider == "anthropic" else ASK_ANIMAL
        answer = litellm.completion(response_format=Animal, **options_of(provider, servers.scripted, question))
        equal(Animal.model_validate_json(answer.choices[0].message.content), TOM)

    if provider == "anthropic":
        return

    @flow(provider, "logprobs")
    def logprobs(servers):
        answer = litellm.completion(logprobs=True, top_logprobs=2, **options_of(provider, servers.real, QUESTION))
        assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2, answer


def response_options(endpoint, text):
    return {"model": f"openai/{endpoint.model}", "api_key": "none", "api_base": endpoint.v1, "max_output_tokens": 200,
            "input": [{"role": "user", "content": text}]}


@flow("responses", "plain")
def responses_plain(servers):
    answer = litellm.responses(**response_options(servers.real, QUESTION))
    assert answer.output[-1].content[0].text, answer


@flow("responses", "stream")
def responses_stream(servers):
    events = list(litellm.responses(stream=True, **response_options(servers.real, QUESTION)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta"), events


def responses_round_trip(servers, choice):
    options = response_options(servers.scripted, ASK_TOOL)
    options["tools"] = [{"type": "function", **TOOLS[0]["function"]}]
    answer = litellm.responses(tool_choice=choice, **options)
    options["input"] += [item.model_dump(exclude_none=True) for item in answer.output]
    for item in answer.output:
        if item.type == "function_call":
            result = weather(**json.loads(item.arguments))
            options["input"].append({"type": "function_call_output", "call_id": item.call_id, "output": result})
    called_once()
    equal(litellm.responses(**options).output[-1].content[0].text, AFTER_TOOL)


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
    answer = litellm.responses(text_format=Animal, **response_options(servers.scripted, ASK_ANIMAL))
    equal(Animal.model_validate_json(answer.output[-1].content[0].text), TOM)


@flow("responses", "logprobs")
def responses_logprobs(servers):
    answer = litellm.responses(include=["message.output_text.logprobs"], top_logprobs=2,
                               **response_options(servers.real, QUESTION))
    part = answer.output[-1].model_dump()["content"][0]
    assert len(part["logprobs"][0]["top_logprobs"]) == 2, part


def completion_options(endpoint):
    return {"model": f"text-completion-openai/{endpoint.model}", "api_key": "none", "api_base": endpoint.v1,
            "prompt": "The sky is", "max_tokens": 8, "temperature": 0}


@flow("completions", "plain")
def completions_plain(servers):
    assert litellm.text_completion(**completion_options(servers.real)).choices[0].text


@flow("completions", "stream")
def completions_stream(servers):
    chunks = litellm.text_completion(stream=True, **completion_options(servers.real))
    text = "".join(chunk.choices[0].text or "" for chunk in chunks)
    equal(text, litellm.text_completion(**completion_options(servers.real)).choices[0].text)


@flow("completions", "logprobs")
def completions_logprobs(servers):
    answer = litellm.text_completion(logprobs=2, **completion_options(servers.real))
    assert answer.choices[0].logprobs.token_logprobs, answer


for one_provider in ("openai", "hosted_vllm", "anthropic"):
    declare(one_provider)
not_offered("anthropic", "Anthropic's API has no logprobs", "logprobs")
not_offered("completions", NO_TOOLS, "auto", "required", "named", "structured")

if __name__ == "__main__":
    main()
