"""The flows of OpenAI's APIs, for clients whose functions take the parameters of an API and answer with its objects.

A script declares the flows with `chat_flows`, `responses_flows` and `completions_flows`. It passes an object of its
client with two functions, which take an endpoint and the parameters of the API without the model:
- `create` returns the answer;
- `stream` returns the text of all parts of a streamed answer; of chats and responses also the answer made of them."""
import functools
import json

from flows import (AFTER_TOOL, ASK_TOOL, CHOICES, NO_TOOLS, PARAMETERS, QUESTION, called_once, equal, flow, not_offered,
                   tool_flows, weather)

TOOL = {"name": "weather", "description": "The weather of a city.", "parameters": PARAMETERS}
CHAT_TOOLS = [{"type": "function", "function": TOOL}]
RESPONSES_TOOLS = [{"type": "function", "strict": False, **TOOL}]


def user(text):
    return [{"role": "user", "content": text}]


def chat_parameters(text):
    return {"messages": user(text), "temperature": 0, "max_tokens": 200}


def response_parameters(text):
    return {"input": user(text), "temperature": 0, "max_output_tokens": 200}


def chat_round_trip(client, servers, choice):
    parameters = {"tools": CHAT_TOOLS, **chat_parameters(ASK_TOOL)}
    answer = client.create(servers.scripted, tool_choice=choice, **parameters).choices[0]
    equal(answer.finish_reason, "tool_calls")
    _, streamed = client.stream(servers.scripted, tool_choice=choice, **parameters)
    equal([one.function.arguments for one in streamed.choices[0].message.tool_calls],
          [one.function.arguments for one in answer.message.tool_calls])
    parameters["messages"].append(answer.message)
    for one in answer.message.tool_calls:
        result = weather(**json.loads(one.function.arguments))
        parameters["messages"].append({"role": "tool", "tool_call_id": one.id, "content": result})
    called_once()
    equal(client.create(servers.scripted, **parameters).choices[0].message.content, AFTER_TOOL)


def chat_flows(api, client, logprobs=True):
    """Declares the flows of /v1/chat/completions, except for structured output. `logprobs`: the client offers them."""
    @flow(api, "plain")
    def plain(servers):
        answer = client.create(servers.real, **chat_parameters(QUESTION))
        assert answer.choices[0].message.content, answer
        equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    @flow(api, "stream")
    def stream(servers):
        text, answer = client.stream(servers.real, **chat_parameters(QUESTION))
        equal(text, answer.choices[0].message.content)
        equal(text, client.create(servers.real, **chat_parameters(QUESTION)).choices[0].message.content)
        assert answer.usage.completion_tokens > 0, answer

    tool_flows(api, functools.partial(chat_round_trip, client), **CHOICES["chat"])
    if not logprobs:
        return

    @flow(api, "logprobs")
    def tokens(servers):
        answer = client.create(servers.real, logprobs=True, top_logprobs=2, **chat_parameters(QUESTION))
        text, tokens = answer.choices[0].message.content, answer.choices[0].logprobs.content
        equal("".join(token.token for token in tokens)[:len(text)], text)
        assert all(len(token.top_logprobs) == 2 for token in tokens), answer


def responses_round_trip(client, servers, choice):
    parameters = {"tools": RESPONSES_TOOLS, **response_parameters(ASK_TOOL)}
    answer = client.create(servers.scripted, tool_choice=choice, **parameters)
    _, streamed = client.stream(servers.scripted, tool_choice=choice, **parameters)
    calls = [item for item in answer.output if item.type == "function_call"]
    equal([item.arguments for item in streamed.output if item.type == "function_call"],
          [one.arguments for one in calls])
    parameters["input"] += answer.output
    for one in calls:
        result = weather(**json.loads(one.arguments))
        parameters["input"].append({"type": "function_call_output", "call_id": one.call_id, "output": result})
    called_once()
    equal(client.create(servers.scripted, **parameters).output_text, AFTER_TOOL)


def responses_flows(api, client):
    """Declares the flows of /v1/responses, except for structured output."""
    @flow(api, "plain")
    def plain(servers):
        answer = client.create(servers.real, **response_parameters(QUESTION))
        assert answer.output_text, answer

    @flow(api, "stream")
    def stream(servers):
        text, answer = client.stream(servers.real, **response_parameters(QUESTION))
        equal(text, answer.output_text)
        equal(text, client.create(servers.real, **response_parameters(QUESTION)).output_text)

    tool_flows(api, functools.partial(responses_round_trip, client), **CHOICES["responses"])

    @flow(api, "logprobs")
    def tokens(servers):
        answer = client.create(servers.real, include=["message.output_text.logprobs"], top_logprobs=2,
                               **response_parameters(QUESTION))
        tokens = answer.model_dump()["output"][-1]["content"][0]["logprobs"]
        assert tokens and all(len(token["top_logprobs"]) == 2 for token in tokens), answer


def completions_flows(api, client):
    """Declares the flows of /v1/completions."""
    parameters = {"prompt": "The sky is", "temperature": 0, "max_tokens": 8}

    @flow(api, "plain")
    def plain(servers):
        answer = client.create(servers.real, **{**parameters, "prompt": ["The sky is", "The sea is"]})
        equal([choice.index for choice in answer.choices], [0, 1])
        assert all(choice.text for choice in answer.choices), answer

    @flow(api, "stream")
    def stream(servers):
        text = client.stream(servers.real, **parameters)
        equal(text, client.create(servers.real, **parameters).choices[0].text)

    @flow(api, "logprobs")
    def tokens(servers):
        answer = client.create(servers.real, echo=True, logprobs=2, **parameters).choices[0]
        equal(answer.logprobs.token_logprobs[0], None)
        equal("".join(answer.logprobs.tokens), answer.text)

    not_offered(api, NO_TOOLS, "auto", "required", "named", "structured")
