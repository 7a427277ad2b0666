"""AutoGen: the model clients for OpenAI's chat API and Anthropic's, and an agent on top of each."""
import functools
import json

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.models import AssistantMessage, FunctionExecutionResult, FunctionExecutionResultMessage, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.anthropic import AnthropicChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, QUESTION, TOM, Animal, called_once, equal, flow, main, not_offered,
                   tool_flows, weather)

TOOL = FunctionTool(weather, description="The weather of a city.")
ABILITIES = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True,
             "family": "unknown"}


def client_of(api, endpoint):
    options = {"model": endpoint.model, "api_key": "none", "model_info": ABILITIES, "max_tokens": 200}
    if api == "messages":
        return AnthropicChatCompletionClient(base_url=endpoint.url, **options)
    return OpenAIChatCompletionClient(base_url=endpoint.v1, temperature=0, **options)


def user(text):
    return [UserMessage(content=text, source="user")]


async def round_trip(api, servers, choice):
    client, messages = client_of(api, servers.scripted), user(ASK_TOOL)
    forced = {"tools": [TOOL], "tool_choice": choice}
    answer = await client.create(messages, **forced)
    *_, streamed = [part async for part in client.create_stream(messages, **forced)]
    equal([one.arguments for one in streamed.content], [one.arguments for one in answer.content])
    results = []
    for one in answer.content:
        value = await TOOL.run_json(json.loads(one.arguments), CancellationToken())
        results.append(FunctionExecutionResult(content=str(value), call_id=one.id, is_error=False, name=one.name))
    called_once()
    messages.append(AssistantMessage(content=answer.content, source="clerk"))
    messages.append(FunctionExecutionResultMessage(content=results))
    equal((await client.create(messages, tools=[TOOL])).content, AFTER_TOOL)


def declare(api):
    @flow(api, "plain")
    async def plain(servers):
        assert (await client_of(api, servers.real).create(user(QUESTION))).content

    @flow(api, "stream")
    async def stream(servers):
        parts = [part async for part in client_of(api, servers.real).create_stream(user(QUESTION))]
        assert parts[-1].content, parts
        equal("".join(parts[:-1]), parts[-1].content)

    tool_flows(api, functools.partial(round_trip, api), auto="auto", required="required", named=TOOL)

    @flow("agent, " + api, "auto")
    async def agent(servers):
        clerk = AssistantAgent("clerk", model_client=client_of(api, servers.scripted), tools=[weather],
                               reflect_on_tool_use=True)
        equal((await clerk.run(task=ASK_TOOL)).messages[-1].content, AFTER_TOOL)
        called_once()


@flow("chat", "structured")
async def structured(servers):
    answer = await client_of("chat", servers.scripted).create(user(ASK_ANIMAL), json_output=Animal)
    equal(Animal.model_validate_json(answer.content), TOM)


@flow("agent, chat", "structured")
async def agent_structured(servers):
    clerk = AssistantAgent("clerk", model_client=client_of("chat", servers.scripted), output_content_type=Animal)
    equal((await clerk.run(task=ASK_ANIMAL)).messages[-1].content, TOM)


@flow("chat", "logprobs")
async def logprobs(servers):
    answer = await client_of("chat", servers.real).create(
        user(QUESTION), extra_create_args={"logprobs": True, "top_logprobs": 2})
    assert len(answer.logprobs[0].top_logprobs) == 2, answer


for one_api in ("chat", "messages"):
    declare(one_api)
    not_offered("agent, " + one_api, "as the model client below it", "plain", "stream", "required", "named", "logprobs")
not_offered("messages", "the client asks Anthropic's models for JSON in words only", "structured")
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")
not_offered("agent, messages", "the client asks Anthropic's models for JSON in words only", "structured")

if __name__ == "__main__":
    main()
