"""LlamaIndex: OpenAILike for chats and completions, OpenAILikeResponses, and an agent on top of OpenAILike."""
import functools

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, NO_TOOLS, QUESTION, TOM, Animal, call, called_once, equal, flow,
                   main, not_offered, say, tool_flows, weather)

TOOL = FunctionTool.from_defaults(weather)
ASK_TOOL_ANIMAL = "Describe a cat. " + say(call("Animal", TOM.model_dump()))


def model_of(api, endpoint, **options):
    options = {"model": endpoint.model, "api_base": endpoint.v1, "api_key": "none", "context_window": 8192,
               "temperature": 0, "max_retries": 0, **options}
    if api == "responses":
        return OpenAILikeResponses(max_output_tokens=200, is_function_calling_model=True, **options)
    if api == "completions":
        return OpenAILike(max_tokens=16, **options)
    return OpenAILike(max_tokens=200, is_chat_model=True, is_function_calling_model=True, **options)


def user(text):
    return [ChatMessage(role="user", content=text)]


def round_trip(api, servers, choice):
    model, history = model_of(api, servers.scripted), user(ASK_TOOL)
    response = model.chat_with_tools([TOOL], chat_history=list(history), tool_choice=choice)
    calls = model.get_tool_calls_from_response(response)
    history.append(response.message)
    for one in calls:
        content = TOOL.call(**one.tool_kwargs).content
        history.append(ChatMessage(role="tool", content=content, additional_kwargs={"tool_call_id": one.tool_id}))
    called_once()
    equal(model.chat_with_tools([TOOL], chat_history=history).message.content, AFTER_TOOL)
    parts = list(model.stream_chat_with_tools([TOOL], chat_history=user(ASK_TOOL), tool_choice=choice))
    equal([one.tool_kwargs for one in model.get_tool_calls_from_response(parts[-1])],
          [one.tool_kwargs for one in calls])


def declare(api, **choices):
    @flow(api, "plain")
    def plain(servers):
        assert model_of(api, servers.real).chat(user(QUESTION)).message.content

    @flow(api, "stream")
    def stream(servers):
        model = model_of(api, servers.real)
        text = "".join(part.delta or "" for part in model.stream_chat(user(QUESTION)))
        equal(text, model.chat(user(QUESTION)).message.content)

    tool_flows(api, functools.partial(round_trip, api), **choices)


@flow("chat", "structured")
def chat_structured(servers):
    prompt = PromptTemplate("{question}")
    equal(model_of("chat", servers.scripted).structured_predict(Animal, prompt, question=ASK_TOOL_ANIMAL), TOM)
    by_format = model_of("chat", servers.scripted, should_use_structured_outputs=True)
    equal(by_format.structured_predict(Animal, prompt, question=ASK_ANIMAL), TOM)


@flow("chat", "logprobs")
def chat_logprobs(servers):
    response = model_of("chat", servers.real, logprobs=True, top_logprobs=2).chat(user(QUESTION))
    assert len(response.logprobs[0]) == 2, response


@flow("responses", "structured")
def responses_structured(servers):
    prompt = PromptTemplate("{question}")
    equal(model_of("responses", servers.scripted).structured_predict(Animal, prompt, question=ASK_ANIMAL), TOM)


@flow("completions", "plain")
def completions_plain(servers):
    assert model_of("completions", servers.real).complete("The sky is").text


@flow("completions", "stream")
def completions_stream(servers):
    model = model_of("completions", servers.real)
    equal("".join(part.delta for part in model.stream_complete("The sky is")), model.complete("The sky is").text)


@flow("completions", "logprobs")
def completions_logprobs(servers):
    response = model_of("completions", servers.real, logprobs=True, top_logprobs=2).complete("The sky is")
    assert len(response.logprobs[0]) == 2, response


@flow("agent", "auto")
async def agent_auto(servers):
    agent = FunctionAgent(tools=[TOOL], llm=model_of("chat", servers.scripted), system_prompt="Answer briefly.")
    equal((await agent.run(user_msg=ASK_TOOL)).response.content, AFTER_TOOL)
    called_once()


declare("chat", auto="auto", required="required", named="weather")
declare("responses", auto="auto", required="required")
not_offered("responses", "the client names the tool in the form of the chat API, which OpenAI refuses here", "named")
not_offered("responses", "OpenAILikeResponses has no logprobs", "logprobs")
not_offered("completions", NO_TOOLS, "auto", "required", "named", "structured")
not_offered("agent", "as the model below it", "plain", "stream", "required", "named", "structured", "logprobs")

if __name__ == "__main__":
    main()
