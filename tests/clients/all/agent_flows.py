"""The flows of agents that ask a question, call the tool, and answer, for libraries that differ in names only."""
from flows import AFTER_TOOL, ASK_TOOL, QUESTION, called_once, equal, flow, tool_flows, weather


def agent_flows(api, agent_of, run, stream, choices):
    """Declares the flows of an agent, except for structured output and logprobs.

    agent_of(endpoint, choice=None): the agent, which may call the tool when there is a choice, one of `choices`.
    run(agent, question): a coroutine of the answer. stream(agent, question): one of the text of all streamed parts."""
    @flow(api, "plain")
    async def plain(servers):
        assert await run(agent_of(servers.real), QUESTION)

    @flow(api, "stream")
    async def streamed(servers):
        agent = agent_of(servers.real)
        equal(await stream(agent, QUESTION), await run(agent, QUESTION))

    async def round_trip(servers, choice):
        for ask in (run, stream):
            weather.calls.clear()
            equal(await ask(agent_of(servers.scripted, choice), ASK_TOOL), AFTER_TOOL)
            called_once()

    tool_flows(api, round_trip, **choices)
