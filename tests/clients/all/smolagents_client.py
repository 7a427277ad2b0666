"""smolagents: the model for OpenAI-compatible servers, and its two agents."""
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

from flows import (AFTER_TOOL, ARGUMENTS, ASK_TOOL, CHOICES, QUESTION, call, called_once, equal, flow, main,
                   not_offered, say, tool_flows, weather)

TOOL = tool(weather)
# Each step of a ToolCallingAgent must be a call, also the last one.
ASK_AGENT = "How is the weather in Bern? " + say(
    call("weather", ARGUMENTS), call("final_answer", {"answer": AFTER_TOOL}))
CODE = 'final_answer(weather(city="Bern", days=2))'


def model_of(endpoint, **options):
    return OpenAIModel(model_id=endpoint.model, api_base=endpoint.v1, api_key="none", temperature=0, max_tokens=400,
                       **options)


def user(text):
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


@flow("chat", "plain")
def plain(servers):
    assert model_of(servers.real).generate(user(QUESTION)).content


@flow("chat", "stream")
def stream(servers):
    model = model_of(servers.real)
    text = "".join(part.content or "" for part in model.generate_stream(user(QUESTION)))
    equal(text, model.generate(user(QUESTION)).content)


def one_call(servers, choice):
    """The call of one step: the agents below run whole loops, always with the choice "required"."""
    model = model_of(servers.scripted)
    options = {"tools_to_call_from": [TOOL], "tool_choice": choice}
    message = model.generate(user(ASK_TOOL), **options)
    message = model.parse_tool_calls(message)
    equal([(one.function.name, one.function.arguments) for one in message.tool_calls], [("weather", ARGUMENTS)])
    deltas = [part for part in model.generate_stream(user(ASK_TOOL), **options) if part.tool_calls]
    assert deltas, "no call was streamed"


@flow("tool agent", "required")
def tool_agent(servers):
    equal(ToolCallingAgent(tools=[TOOL], model=model_of(servers.scripted)).run(ASK_AGENT), AFTER_TOOL)
    called_once()


@flow("tool agent", "stream")
def tool_agent_stream(servers):
    agent = ToolCallingAgent(tools=[TOOL], model=model_of(servers.scripted), stream_outputs=True)
    equal(agent.run(ASK_AGENT), AFTER_TOOL)
    called_once()


def run_code(servers, text, **options):
    agent = CodeAgent(tools=[TOOL], model=model_of(servers.scripted), **options)
    equal(agent.run("How is the weather in Bern? " + say(text)), "rain in Bern for 2 days")
    called_once()


@flow("code agent", "plain")
def code_agent(servers):
    run_code(servers, f"Thought: I ask the tool.\n<code>\n{CODE}\n</code>")


@flow("code agent", "stream")
def code_agent_stream(servers):
    run_code(servers, f"Thought: I ask the tool.\n<code>\n{CODE}\n</code>", stream_outputs=True)


@flow("code agent", "structured")
def code_agent_structured(servers):
    text = '{"thought": "I ask the tool.", "code": "' + CODE.replace('"', '\\"') + '"}'
    run_code(servers, text, use_structured_outputs_internally=True)


tool_flows("chat", one_call, **CHOICES["chat"])
not_offered("chat", "the model has no structured output of its own: see the agents", "structured")
not_offered("chat", "messages have no logprobs", "logprobs")
not_offered("tool agent", "the agent demands calls", "plain", "auto", "named", "structured", "logprobs")
not_offered("code agent", "the agent calls tools in code", "auto", "required", "named", "logprobs")

if __name__ == "__main__":
    main()
