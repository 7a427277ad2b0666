"""Pydantic AI, through its models for the three APIs."""
import functools

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from agent_flows import agent_flows
from flows import (ASK_ANIMAL, ASK_TOOL_THEN_ANIMAL, QUESTION, TOM, Animal, call, called_once, equal, flow, main,
                   not_offered, say, weather)

MODELS = {"chat": (OpenAIChatModel, OpenAIProvider), "responses": (OpenAIResponsesModel, OpenAIProvider),
          "messages": (AnthropicModel, AnthropicProvider)}
ASK_RESULT = "Describe a cat. " + say(call("final_result", TOM.model_dump()))


def agent_of(api, endpoint, choice=None, settings=None, **options):
    model, provider = MODELS[api]
    base_url = endpoint.url if api == "messages" else endpoint.v1
    settings = {"max_tokens": 200, "temperature": 0, **(settings or {})}
    if choice:
        options["tools"] = [weather]

    def settings_of_step(context):  # only a callable may force a call, because every step would have to call
        return {**settings, "tool_choice": choice if context.run_step <= 1 else "auto"}
    return Agent(model(endpoint.model, provider=provider(base_url=base_url, api_key="none")),
                 instructions="Answer briefly.", model_settings=settings_of_step if choice else settings, **options)


async def run(agent, question):
    return (await agent.run(question)).output


async def stream(agent, question):
    async with agent.run_stream(question) as result:
        return "".join([part async for part in result.stream_text(delta=True)])


def declare(api):
    choices = {"auto": "auto", "required": "required", "named": ["weather"]}
    agent_flows(api, functools.partial(agent_of, api), run, stream, choices)

    @flow(api, "structured")
    async def structured(servers):
        agent = agent_of(api, servers.scripted, output_type=Animal)
        equal(await run(agent, ASK_RESULT), TOM)
        async with agent.run_stream(ASK_RESULT) as result:
            equal(await result.get_output(), TOM)
        if api != "messages":  # of Anthropic's models it is for some names only
            agent = agent_of(api, servers.scripted, "auto", output_type=NativeOutput(Animal))
            equal(await run(agent, ASK_ANIMAL), TOM)
            equal(await run(agent, ASK_TOOL_THEN_ANIMAL), TOM)
            called_once()

    if api == "messages":
        return

    @flow(api, "logprobs")
    async def logprobs(servers):
        settings = {"openai_logprobs": True, "openai_top_logprobs": 2}
        response = (await agent_of(api, servers.real, settings=settings).run(QUESTION)).response
        details = response.provider_details if api == "chat" else response.parts[0].provider_details
        assert details["logprobs"] and len(details["logprobs"][0]["top_logprobs"]) == 2, response


for one_api in MODELS:
    declare(one_api)
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")

if __name__ == "__main__":
    main()
