"""LangChain: ChatOpenAI for two APIs of OpenAI, OpenAI for completions, ChatAnthropic, and agents on top of them."""
import functools

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

from flows import (AFTER_TOOL, ARGUMENTS, ASK_ANIMAL, ASK_TOOL, ASK_TOOL_THEN_ANIMAL, NO_TOOLS, QUESTION, TOM, Animal,
                   call, called_once, equal, flow, main, not_offered, say, tool_flows, weather)

TOOL = tool(weather)
ASK_TOOL_ANIMAL = "Describe a cat. " + say(call("Animal", TOM.model_dump()))


def model_of(api, endpoint, **options):
    if api == "messages":
        return ChatAnthropic(base_url=endpoint.url, api_key="none", model=endpoint.model, max_tokens=200, **options)
    return ChatOpenAI(base_url=endpoint.v1, api_key="none", model=endpoint.model, use_responses_api=api == "responses",
                      temperature=0, max_tokens=200, stream_usage=True, **options)


def sum_of(chunks):
    total = None
    for chunk in chunks:
        total = chunk if total is None else total + chunk
    return total


def round_trip(api, servers, choice):
    model = model_of(api, servers.scripted)
    forced, free = model.bind_tools([TOOL], tool_choice=choice), model.bind_tools([TOOL])
    messages = [HumanMessage(ASK_TOOL)]
    answer = forced.invoke(messages)
    streamed = sum_of(forced.stream(messages))
    equal([(one["name"], one["args"]) for one in streamed.tool_calls],
          [(one["name"], one["args"]) for one in answer.tool_calls])
    messages += [answer] + [TOOL.invoke(one) for one in answer.tool_calls]
    called_once()
    equal(free.invoke(messages).text, AFTER_TOOL)


def declare(api):
    @flow(api, "plain")
    def plain(servers):
        answer = model_of(api, servers.real).invoke(QUESTION)
        assert answer.text, answer
        assert answer.usage_metadata["output_tokens"] > 0, answer

    @flow(api, "stream")
    def stream(servers):
        total = sum_of(model_of(api, servers.real).stream(QUESTION))
        assert total.text, total
        assert total.usage_metadata["output_tokens"] > 0, total

    tool_flows(api, functools.partial(round_trip, api), auto="auto", required="any", named="weather")

    @flow(api, "structured")
    def structured(servers):
        question = ASK_TOOL_ANIMAL if api == "messages" else ASK_ANIMAL  # by a named tool
        equal(model_of(api, servers.scripted).with_structured_output(Animal).invoke(question), TOM)


@flow("chat", "logprobs")
def chat_logprobs(servers):
    answer = model_of("chat", servers.real, logprobs=True, top_logprobs=2).invoke(QUESTION)
    tokens = answer.response_metadata["logprobs"]["content"]
    assert len(tokens[0]["top_logprobs"]) == 2, tokens


@flow("completions", "plain")
def completions_plain(servers):
    assert OpenAI(base_url=servers.real.v1, api_key="none", model=servers.real.model, max_tokens=8).invoke("The sky is")


@flow("completions", "stream")
def completions_stream(servers):
    model = OpenAI(base_url=servers.real.v1, api_key="none", model=servers.real.model, temperature=0, max_tokens=8)
    equal("".join(model.stream("The sky is")), model.invoke("The sky is"))


@flow("completions", "logprobs")
def completions_logprobs(servers):
    model = OpenAI(base_url=servers.real.v1, api_key="none", model=servers.real.model, max_tokens=8, logprobs=2)
    generation = model.generate(["The sky is"]).generations[0][0]
    assert generation.generation_info["logprobs"]["token_logprobs"], generation


def run_agent(servers, question, api="chat", **options):
    agent = create_agent(model_of(api, servers.scripted), tools=[weather], **options)
    return agent.invoke({"messages": [HumanMessage(question)]})


@flow("agent", "auto")
def agent_auto(servers):
    for api in ("chat", "responses", "messages"):
        weather.calls.clear()
        equal(run_agent(servers, ASK_TOOL, api)["messages"][-1].text, AFTER_TOOL)
        called_once()


@flow("agent", "structured")
def agent_structured(servers):
    """A tool first, then an answer in a format: by a tool, which is the default, and by the response format."""
    by_tool = "Describe a cat in Bern. " + say(call("weather", ARGUMENTS), call("Animal", TOM.model_dump()))
    for strategy, question in ((Animal, by_tool), (ToolStrategy(Animal), by_tool),
                               (ProviderStrategy(Animal), ASK_TOOL_THEN_ANIMAL)):
        weather.calls.clear()
        result = run_agent(servers, question, response_format=strategy)
        equal(result["structured_response"], TOM)
        called_once()


for one_api in ("chat", "responses", "messages"):
    declare(one_api)
not_offered("responses", "ChatOpenAI drops the logprobs of responses", "logprobs")
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")
not_offered("completions", NO_TOOLS, "auto", "required", "named", "structured")
not_offered("agent", "as the models below it", "plain", "stream", "required", "named", "logprobs")

if __name__ == "__main__":
    main()
