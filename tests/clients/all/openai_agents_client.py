"""The OpenAI Agents SDK, through its models for both APIs."""
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)
from openai import AsyncOpenAI

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, ASK_TOOL_THEN_ANIMAL, QUESTION, TOM, Animal, called_once, equal,
                   flow, main, weather)

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agent_of(api, endpoint, settings=None, **options):
    client = AsyncOpenAI(base_url=endpoint.v1, api_key="none")
    settings = {"max_tokens": 200, "temperature": 0, **(settings or {})}
    return Agent(name="Clerk", instructions="Answer briefly.", model_settings=ModelSettings(**settings),
                 model=MODELS[api](model=endpoint.model, openai_client=client), **options)


async def streamed_text(agent, question):
    result = Runner.run_streamed(agent, question)
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    return text, result.final_output


async def round_trip(api, servers, choice):
    def agent():
        return agent_of(api, servers.scripted, {"tool_choice": choice}, tools=[function_tool(weather)])
    equal((await Runner.run(agent(), ASK_TOOL)).final_output, AFTER_TOOL)
    called_once()
    weather.calls.clear()
    text, final = await streamed_text(agent(), ASK_TOOL)
    equal((text, final), (AFTER_TOOL, AFTER_TOOL))
    called_once()


def declare(api):
    @flow(api, "plain")
    async def plain(servers):
        assert (await Runner.run(agent_of(api, servers.real), QUESTION)).final_output

    @flow(api, "stream")
    async def stream(servers):
        text, final = await streamed_text(agent_of(api, servers.real), QUESTION)
        assert text, final
        equal(text, final)

    for name, choice in (("auto", "auto"), ("required", "required"), ("named", "weather")):
        @flow(api, name)
        async def tools(servers, choice=choice):
            await round_trip(api, servers, choice)

    @flow(api, "structured")
    async def structured(servers):
        agent = agent_of(api, servers.scripted, output_type=Animal)
        equal((await Runner.run(agent, ASK_ANIMAL)).final_output, TOM)
        agent = agent_of(api, servers.scripted, output_type=Animal, tools=[function_tool(weather)])
        equal((await Runner.run(agent, ASK_TOOL_THEN_ANIMAL)).final_output, TOM)
        called_once()

    @flow(api, "logprobs")
    async def logprobs(servers):
        result = await Runner.run(agent_of(api, servers.real, {"top_logprobs": 2}), QUESTION)
        tokens = result.raw_responses[0].output[-1].content[0].logprobs
        assert tokens and len(tokens[0].top_logprobs) == 2, result.raw_responses


set_tracing_disabled(True)
for one_api in MODELS:
    declare(one_api)

if __name__ == "__main__":
    main()
