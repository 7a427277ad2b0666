"""The OpenAI Agents SDK, through its models for both APIs."""
import functools

from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                    set_tracing_disabled)
from openai import AsyncOpenAI

from agent_flows import agent_flows
from flows import ASK_ANIMAL, ASK_TOOL_THEN_ANIMAL, QUESTION, TOM, Animal, called_once, equal, flow, main, weather

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agent_of(api, endpoint, choice=None, settings=None, **options):
    client = AsyncOpenAI(base_url=endpoint.v1, api_key="none")
    settings = ModelSettings(max_tokens=200, temperature=0, tool_choice=choice, **(settings or {}))
    if choice:
        options["tools"] = [function_tool(weather)]
    return Agent(name="Clerk", instructions="Answer briefly.", model_settings=settings,
                 model=MODELS[api](model=endpoint.model, openai_client=client), **options)


async def run(agent, question):
    return (await Runner.run(agent, question)).final_output


async def stream(agent, question):
    result = Runner.run_streamed(agent, question)
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    equal(text, result.final_output)
    return text


def declare(api):
    choices = {"auto": "auto", "required": "required", "named": "weather"}
    agent_flows(api, functools.partial(agent_of, api), run, stream, choices)

    @flow(api, "structured")
    async def structured(servers):
        equal(await run(agent_of(api, servers.scripted, output_type=Animal), ASK_ANIMAL), TOM)
        equal(await run(agent_of(api, servers.scripted, "auto", output_type=Animal), ASK_TOOL_THEN_ANIMAL), TOM)
        called_once()

    @flow(api, "logprobs")
    async def logprobs(servers):
        result = await Runner.run(agent_of(api, servers.real, settings={"top_logprobs": 2}), QUESTION)
        tokens = result.raw_responses[0].output[-1].content[0].logprobs
        assert tokens and len(tokens[0].top_logprobs) == 2, result.raw_responses


set_tracing_disabled(True)
for one_api in MODELS:
    declare(one_api)

if __name__ == "__main__":
    main()
