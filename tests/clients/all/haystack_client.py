"""Haystack: the chat generators for the three APIs, and agents on top of them."""
import functools
import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from haystack_integrations.components.generators.anthropic import AnthropicChatGenerator

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, CHOICES, QUESTION, TOM, Animal, called_once, equal, flow, main,
                   not_offered, tool_flows, weather)

TOOL = create_tool_from_function(weather)
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


def generator_of(api, endpoint, **options):
    options = {LIMITS[api]: 200, **options}
    if api == "messages":
        os.environ["ANTHROPIC_BASE_URL"] = endpoint.url  # the generator has no parameter for it
        return AnthropicChatGenerator(api_key=Secret.from_token("none"), model=endpoint.model,
                                      generation_kwargs=options)
    kind = OpenAIChatGenerator if api == "chat" else OpenAIResponsesChatGenerator
    return kind(api_key=Secret.from_token("none"), model=endpoint.model, api_base_url=endpoint.v1,
                generation_kwargs={"temperature": 0, **options})


def user(text):
    return [ChatMessage.from_user(text)]


def streamed(generator, messages, **options):
    parts = []
    reply = generator.run(messages, streaming_callback=parts.append, **options)["replies"][0]
    return "".join(part.content for part in parts), reply


def round_trip(api, servers, choice):
    generator, messages = generator_of(api, servers.scripted), user(ASK_TOOL)
    forced = {"tools": [TOOL], "generation_kwargs": {"tool_choice": choice}}
    reply = generator.run(messages, **forced)["replies"][0]
    equal([one.arguments for one in streamed(generator, messages, **forced)[1].tool_calls],
          [one.arguments for one in reply.tool_calls])
    messages.append(reply)
    messages += [ChatMessage.from_tool(TOOL.invoke(**one.arguments), origin=one) for one in reply.tool_calls]
    called_once()
    equal(generator.run(messages, tools=[TOOL])["replies"][0].text, AFTER_TOOL)


def declare(api):
    @flow(api, "plain")
    def plain(servers):
        assert generator_of(api, servers.real).run(user(QUESTION))["replies"][0].text

    @flow(api, "stream")
    def stream(servers):
        text, reply = streamed(generator_of(api, servers.real), user(QUESTION))
        assert text, reply
        equal(text, reply.text)

    tool_flows(api, functools.partial(round_trip, api), **CHOICES[api])

    @flow(api, "structured")
    def structured(servers):
        schema = {"type": "json_schema", "schema": {**Animal.model_json_schema(), "additionalProperties": False}}
        formats = {"chat": {"response_format": Animal}, "responses": {"text_format": Animal},
                   "messages": {"output_config": {"format": schema}}}
        reply = generator_of(api, servers.scripted, **formats[api]).run(user(ASK_ANIMAL))["replies"][0]
        equal(Animal.model_validate_json(reply.text), TOM)


@flow("chat", "logprobs")
def chat_logprobs(servers):
    generator = generator_of("chat", servers.real, logprobs=True, top_logprobs=2)
    tokens = generator.run(user(QUESTION))["replies"][0].meta["logprobs"]["content"]
    assert len(tokens[0]["top_logprobs"]) == 2, tokens


@flow("responses", "logprobs")
def responses_logprobs(servers):
    generator = generator_of("responses", servers.real, include=["message.output_text.logprobs"], top_logprobs=2)
    assert generator.run(user(QUESTION))["replies"][0].meta["logprobs"][0]


@flow("agent", "auto")
def agent_auto(servers):
    for api in CHOICES:
        weather.calls.clear()
        agent = Agent(chat_generator=generator_of(api, servers.scripted), tools=[TOOL])
        equal(agent.run(messages=user(ASK_TOOL))["messages"][-1].text, AFTER_TOOL)
        called_once()


for one_api in CHOICES:
    declare(one_api)
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")
not_offered("agent", "as the generator below it", "plain", "stream", "required", "named", "structured", "logprobs")

if __name__ == "__main__":
    main()
