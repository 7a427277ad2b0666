"""The official client of Anthropic."""
import anthropic

from flows import (AFTER_TOOL, ASK_ANIMAL, ASK_TOOL, CHOICES, PARAMETERS, QUESTION, TOM, Animal, called_once, equal,
                   flow, main, not_offered, tool_flows, weather)

TOOLS = [{"name": "weather", "description": "The weather of a city.", "input_schema": PARAMETERS}]


def client_of(endpoint):
    return anthropic.Anthropic(base_url=endpoint.url, api_key="none")


def options_of(endpoint, text):
    return {"model": endpoint.model, "messages": [{"role": "user", "content": text}], "max_tokens": 200}


# The client has no member for the temperature, which its newest models do not take.
GREEDY = {"extra_body": {"temperature": 0}}


@flow("messages", "plain")
def plain(servers):
    client, options = client_of(servers.real), options_of(servers.real, QUESTION)
    answer = client.messages.create(**options, **GREEDY)
    assert answer.content[0].text, answer
    count = client.messages.count_tokens(model=options["model"], messages=options["messages"])
    equal(count.input_tokens, answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0))


@flow("messages", "stream")
def stream(servers):
    client, options = client_of(servers.real), options_of(servers.real, QUESTION)
    with client.messages.stream(**options, **GREEDY) as events:
        text = "".join(events.text_stream)
    equal(text, client.messages.create(**options, **GREEDY).content[0].text)


def round_trip(servers, choice):
    client, options = client_of(servers.scripted), options_of(servers.scripted, ASK_TOOL)
    options["tools"] = TOOLS
    answer = client.messages.create(tool_choice=choice, **options)
    equal(answer.stop_reason, "tool_use")
    with client.messages.stream(tool_choice=choice, **options) as events:
        streamed = events.get_final_message()
    calls = [block for block in answer.content if block.type == "tool_use"]
    equal([block.input for block in streamed.content if block.type == "tool_use"], [one.input for one in calls])
    results = [{"type": "tool_result", "tool_use_id": one.id, "content": weather(**one.input)} for one in calls]
    called_once()
    options["messages"] += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    equal(client.messages.create(**options).content[0].text, AFTER_TOOL)


@flow("messages", "structured")
def structured(servers):
    client, options = client_of(servers.scripted), options_of(servers.scripted, ASK_ANIMAL)
    equal(client.messages.parse(output_format=Animal, **options).parsed_output, TOM)


@flow("tool runner", "auto")
def runner_auto(servers):
    runner = client_of(servers.scripted).beta.messages.tool_runner(
        tools=[anthropic.beta_tool(weather)], **options_of(servers.scripted, ASK_TOOL))
    equal(runner.until_done().content[0].text, AFTER_TOOL)
    called_once()


@flow("tool runner", "stream")
def runner_stream(servers):
    runner = client_of(servers.scripted).beta.messages.tool_runner(
        tools=[anthropic.beta_tool(weather)], stream=True, **options_of(servers.scripted, ASK_TOOL))
    texts = [part.get_final_message().content[-1] for part in runner]
    equal([block.type for block in texts], ["tool_use", "text"])
    equal(texts[-1].text, AFTER_TOOL)
    called_once()


tool_flows("messages", round_trip, **CHOICES["messages"])
not_offered("messages", "Anthropic's API has no logprobs", "logprobs")
not_offered("tool runner", "the same requests as above", "plain", "required", "named", "structured", "logprobs")

if __name__ == "__main__":
    main()
