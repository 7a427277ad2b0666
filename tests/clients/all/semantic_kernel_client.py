"""Semantic Kernel: chat and text completion of OpenAI's APIs, and the agent for the Responses API."""
from openai import AsyncOpenAI
from semantic_kernel import Kernel
from semantic_kernel.agents import OpenAIResponsesAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import (OpenAIChatCompletion, OpenAIChatPromptExecutionSettings,
                                                   OpenAITextCompletion, OpenAITextPromptExecutionSettings)
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

from flows import (AFTER_TOOL, ARGUMENTS, ASK_ANIMAL, NO_TOOLS, QUESTION, TOM, Animal, call, called_once, equal,
                   flow, main, not_offered, say, weather)

# The kernel puts the name of the plugin before that of the function.
ASK_PLUGIN = "How is the weather in Bern? " + say(call("tools-weather", ARGUMENTS))


class Tools:
    @kernel_function(name="weather", description="The weather of a city.")
    def weather(self, city: str, days: int) -> str:
        return weather(city, days)


def service_of(endpoint, kind=OpenAIChatCompletion):
    return kind(ai_model_id=endpoint.model, async_client=AsyncOpenAI(base_url=endpoint.v1, api_key="none"))


def kernel_with_tools():
    kernel = Kernel()
    kernel.add_plugin(Tools(), plugin_name="tools")
    return kernel


def history_of(text):
    history = ChatHistory()
    history.add_user_message(text)
    return history


def settings_of(**options):
    return OpenAIChatPromptExecutionSettings(max_tokens=200, temperature=0, **options)


@flow("chat", "plain")
async def chat_plain(servers):
    answer = await service_of(servers.real).get_chat_message_content(history_of(QUESTION), settings_of())
    assert answer.content, answer


@flow("chat", "stream")
async def chat_stream(servers):
    service, history = service_of(servers.real), history_of(QUESTION)
    parts = [str(part) async for part in service.get_streaming_chat_message_content(history, settings_of())]
    equal("".join(parts), (await service.get_chat_message_content(history, settings_of())).content)


async def chat_round_trip(servers, behavior, streamed_end=AFTER_TOOL):
    service, settings = service_of(servers.scripted), settings_of(function_choice_behavior=behavior)
    options = {"settings": settings, "kernel": kernel_with_tools()}
    equal((await service.get_chat_message_content(history_of(ASK_PLUGIN), **options)).content, AFTER_TOOL)
    called_once()
    weather.calls.clear()
    parts = [str(part) async for part in service.get_streaming_chat_message_content(history_of(ASK_PLUGIN), **options)]
    equal("".join(parts), streamed_end)
    called_once()


@flow("chat", "auto")
async def chat_auto(servers):
    await chat_round_trip(servers, FunctionChoiceBehavior.Auto())


@flow("chat", "required")
async def chat_required(servers):
    # The kernel does not ask again after a stream of forced calls.
    await chat_round_trip(servers, FunctionChoiceBehavior.Required(), streamed_end="")


@flow("chat", "structured")
async def chat_structured(servers):
    settings = settings_of(response_format=Animal)
    answer = await service_of(servers.scripted).get_chat_message_content(history_of(ASK_ANIMAL), settings)
    equal(Animal.model_validate_json(answer.content), TOM)


@flow("completions", "plain")
async def completions_plain(servers):
    service = service_of(servers.real, OpenAITextCompletion)
    assert (await service.get_text_content("The sky is", OpenAITextPromptExecutionSettings(max_tokens=8))).text


@flow("completions", "stream")
async def completions_stream(servers):
    service = service_of(servers.real, OpenAITextCompletion)
    settings = OpenAITextPromptExecutionSettings(max_tokens=8, temperature=0)
    parts = [str(part) async for part in service.get_streaming_text_content("The sky is", settings)]
    equal("".join(parts), (await service.get_text_content("The sky is", settings)).text)


@flow("completions", "logprobs")
async def completions_logprobs(servers):
    service = service_of(servers.real, OpenAITextCompletion)
    answer = await service.get_text_content("The sky is", OpenAITextPromptExecutionSettings(max_tokens=8, logprobs=2))
    assert answer.metadata["logprobs"].token_logprobs, answer


def agent_of(endpoint, **options):
    # Without a store the agent sends the whole conversation, which servers without a state need.
    client = AsyncOpenAI(base_url=endpoint.v1, api_key="none")
    return OpenAIResponsesAgent(ai_model_id=endpoint.model, client=client, name="Clerk", instructions="Answer briefly.",
                                store_enabled=False, temperature=0, **options)


@flow("responses agent", "plain")
async def agent_plain(servers):
    assert str((await agent_of(servers.real).get_response(QUESTION)).message)


@flow("responses agent", "stream")
async def agent_stream(servers):
    assert "".join([str(part.message) async for part in agent_of(servers.real).invoke_stream(QUESTION)])


async def agent_round_trip(servers, behavior):
    agent = agent_of(servers.scripted, kernel=kernel_with_tools(), function_choice_behavior=behavior)
    equal(str((await agent.get_response(ASK_PLUGIN)).message), AFTER_TOOL)
    called_once()


@flow("responses agent", "auto")
async def agent_auto(servers):
    await agent_round_trip(servers, FunctionChoiceBehavior.Auto())


@flow("responses agent", "structured")
async def agent_structured(servers):
    agent = agent_of(servers.scripted, text=OpenAIResponsesAgent.configure_response_format(Animal))
    equal(Animal.model_validate_json(str((await agent.get_response(ASK_ANIMAL)).message)), TOM)


not_offered("chat", "the kernel chooses among several functions only", "named")
not_offered("chat", "the settings of chats have no logprobs", "logprobs")
not_offered("completions", NO_TOOLS, "auto", "required", "named", "structured")
not_offered("responses agent", "the agent has no such settings", "required", "named", "logprobs")

if __name__ == "__main__":
    main()
