"""Pydantic AI, through its models for the three APIs."""
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, ASK_TOOL_THEN_ANIMAL, QUESTION, TOM, Animal, call, called_once,
                   equal, flow, main, not_offered, say, weather)

MODELS = {"chat": (OpenAIChatModel, OpenAIProvider), "responses": (OpenAIResponsesModel, OpenAIProvider),
          "messages": (AnthropicModel, AnthropicProvider)}
ASK_RESULT = "Describe a cat. " + say(call("final_result", TOM.model_dump()))


def agent_of(api, endpoint, settings=None, **options):
    model, provider = MODELS[api]
    base_url = endpoint.url if api == "messages" else endpoint.v1
    settings = settings or {"max_tokens": 200, "temperature": 0}
    return Agent(model(endpoint.model, provider=provider(base_url=base_url, api_key="none")),
                 instructions="Answer briefly.", model_settings=settings, **options)


async def streamed_text(agent, question):
    async with agent.run_stream(question) as result:
        return "".join([part async for part in result.stream_text(delta=True)])


async def round_trip(api, servers, choice):
    def settings(context):  # only a callable may force a call, because every step would have to call
        return {"max_tokens": 200, "tool_choice": choice if context.run_step <= 1 else "auto"}
    agent = agent_of(api, servers.scripted, settings, tools=[weather])
    equal((await agent.run(ASK_TOOL)).output, AFTER_TOOL)
    called_once()
    weather.calls.clear()
    equal(await streamed_text(agent, ASK_TOOL), AFTER_TOOL)
    called_once()


def declare(api):
    @flow(api, "plain")
    async def plain(servers):
        assert (await agent_of(api, servers.real).run(QUESTION)).output

    @flow(api, "stream")
    async def stream(servers):
        agent = agent_of(api, servers.real)
        equal(await streamed_text(agent, QUESTION), (await agent.run(QUESTION)).output)

    for name, choice in (("auto", "auto"), ("required", "required"), ("named", ["weather"])):
        @flow(api, name)
        async def tools(servers, choice=choice):
            await round_trip(api, servers, choice)

    @flow(api, "structured")
    async def structured(servers):
        agent = agent_of(api, servers.scripted, output_type=Animal)
        equal((await agent.run(ASK_RESULT)).output, TOM)
        async with agent.run_stream(ASK_RESULT) as result:
            equal(await result.get_output(), TOM)
        if api != "messages":  # of Anthropic's models it is for some names only
            agent = agent_of(api, servers.scripted, output_type=NativeOutput(Animal), tools=[weather])
            equal((await agent.run(ASK_ANIMAL)).output, TOM)
            equal((await agent.run(ASK_TOOL_THEN_ANIMAL)).output, TOM)
            called_once()

    if api == "messages":
        return

    @flow(api, "logprobs")
    async def logprobs(servers):
        settings = {"max_tokens": 20, "openai_logprobs": True, "openai_top_logprobs": 2}
        response = (await agent_of(api, servers.real, settings).run(QUESTION)).response
        details = response.provider_details if api == "chat" else response.parts[0].provider_details
        assert details["logprobs"] and len(details["logprobs"][0]["top_logprobs"]) == 2, response


for one_api in MODELS:
    declare(one_api)
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")

if __name__ == "__main__":
    main()
